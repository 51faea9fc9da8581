/** A table of many rows, of which only those that are seen are in the page. Rows are chosen by mouse or by keyboard: arrows, Page Up and Down, Home, End, Enter. */
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'

/** One column. */
export interface Column<Row> {
  readonly name: string
  /** As in `grid-template-columns`. */
  readonly width: string
  readonly cell: (row: Row) => ComponentChildren
  readonly isNumber?: boolean
}

interface GridProps<Row> {
  readonly label: string
  readonly columns: readonly Column<Row>[]
  readonly count: number
  readonly rowAt: (index: number) => Row | undefined
  readonly keyOf: (row: Row) => string
  readonly kindOf?: (row: Row) => string
  /** Key of the row that is chosen. */
  readonly chosen: string | undefined
  readonly onChoose: (row: Row) => void
  /** Somebody moves about: what flows should stop. */
  readonly onMove?: () => void
  readonly empty: ComponentChildren
}

/** Of a row, and of the head, which stays where it is. */
const ROW_PX = 28
/** Rows beyond the edges. */
const MARGIN = 6

/** See above. */
export function Grid<Row>(props: GridProps<Row>) {
  const { label, columns, count, rowAt, keyOf, kindOf, chosen, onChoose, onMove, empty } = props
  const id = useId()
  const grid = useRef<HTMLDivElement>(null)
  const [top, setTop] = useState(0)
  const [height, setHeight] = useState(400)
  const [active, setActive] = useState<number | undefined>(undefined)

  useLayoutEffect(() => {
    const element = grid.current
    if (element === null) return
    const watcher = new ResizeObserver(() => setHeight(element.clientHeight - ROW_PX))
    watcher.observe(element)
    return () => watcher.disconnect()
  }, [])
  useEffect(() => {
    if (active !== undefined && active >= count) setActive(count === 0 ? undefined : count - 1)
  }, [count])

  const first = Math.max(0, Math.floor(top / ROW_PX) - MARGIN)
  const last = Math.min(count, Math.ceil((top + height) / ROW_PX) + MARGIN)
  const template = columns.map(({ width }) => width).join(' ')

  const moveTo = (index: number): void => {
    const next = Math.max(0, Math.min(count - 1, index))
    onMove?.()
    setActive(next)
    const element = grid.current
    if (element === null) return
    if (next * ROW_PX < element.scrollTop) element.scrollTop = next * ROW_PX
    else if ((next + 1) * ROW_PX > element.scrollTop + height) element.scrollTop = (next + 1) * ROW_PX - height
  }
  const choose = (index: number): void => {
    const row = rowAt(index)
    if (row === undefined) return
    setActive(index)
    onChoose(row)
  }
  const onKeyDown = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(height / ROW_PX) - 1)
    const at = active ?? -1
    const steps: Readonly<Record<string, number>> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: count - 1,
    }
    const next = steps[event.key]
    if (next !== undefined) moveTo(next)
    else if ((event.key === 'Enter' || event.key === ' ') && active !== undefined) choose(active)
    else return
    event.preventDefault()
  }

  const rows = []
  for (let index = first; index < last; index += 1) {
    const row = rowAt(index)
    if (row === undefined) continue
    const key = keyOf(row)
    rows.push(
      // By its place: what flows changes texts, and makes no elements.
      <div
        key={index - first}
        role="row"
        id={`${id}-${index}`}
        aria-rowindex={index + 2}
        aria-selected={key === chosen}
        class={`row ${kindOf?.(row) ?? ''} ${index === active ? 'active' : ''}`}
        style={{ transform: `translateY(${index * ROW_PX}px)`, gridTemplateColumns: template }}
        onClick={() => choose(index)}
      >
        {columns.map(({ cell, isNumber }) => (
          <div role="gridcell" class={isNumber === true ? 'cell number' : 'cell'}>
            {cell(row)}
          </div>
        ))}
      </div>,
    )
  }
  const isSeen = active !== undefined && active >= first && active < last
  return (
    <div
      class="grid"
      role="grid"
      ref={grid}
      tabIndex={0}
      aria-label={label}
      aria-rowcount={count + 1}
      aria-activedescendant={isSeen ? `${id}-${active}` : undefined}
      onKeyDown={onKeyDown}
      onScroll={(event) => {
        const now = event.currentTarget.scrollTop
        if (now > top && now > ROW_PX) onMove?.()
        setTop(now)
      }}
    >
      <div role="rowgroup" class="heads">
        <div role="row" aria-rowindex={1} class="head" style={{ gridTemplateColumns: template }}>
          {columns.map(({ name, isNumber }) => (
            <div role="columnheader" class={isNumber === true ? 'cell number' : 'cell'}>
              {name}
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup">
        <div role="presentation" style={{ height: `${count * ROW_PX}px` }} class="track">
          {rows}
        </div>
        {count === 0 && <div class="empty">{empty}</div>}
      </div>
    </div>
  )
}
