/** What was asked of the API, and the fault if there was one; asked again when what it depends on changes, and by the clock while the page is seen. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'

/** The state of a question. */
export interface Answered<T> {
  readonly value: T | undefined
  readonly fault: unknown
  readonly isAsking: boolean
  readonly again: () => void
}

/** `ask` is called anew when one of `on` changes; every `everyMs` milliseconds too, if given. An answer that is overtaken is dropped. `undefined` for `ask`: not asked. */
export function useAsked<T>(
  ask: ((signal: AbortSignal) => Promise<T>) | undefined,
  on: readonly unknown[],
  everyMs?: number,
): Answered<T> {
  const [state, setState] = useState<{ value: T | undefined; fault: unknown; isAsking: boolean }>({
    value: undefined,
    fault: undefined,
    isAsking: ask !== undefined,
  })
  const current = useRef(ask)
  current.current = ask
  const underway = useRef<AbortController>(undefined)

  const run = useCallback(async () => {
    underway.current?.abort()
    if (current.current === undefined) return
    const controller = (underway.current = new AbortController())
    setState((before) => ({ ...before, isAsking: true }))
    try {
      const value = await current.current(controller.signal)
      if (!controller.signal.aborted) setState({ value, fault: undefined, isAsking: false })
    } catch (fault) {
      if (!controller.signal.aborted) setState((before) => ({ ...before, fault, isAsking: false }))
    }
  }, [])

  useEffect(() => {
    setState({ value: undefined, fault: undefined, isAsking: current.current !== undefined })
    void run()
    return () => underway.current?.abort()
  }, on)
  useEffect(() => {
    if (everyMs === undefined) return
    const timer = window.setInterval(() => {
      if (!document.hidden) void run()
    }, everyMs)
    return () => clearInterval(timer)
  }, [everyMs])

  return { ...state, again: () => void run() }
}
