/** Which view is shown, and of what: the part of the address after `#`, so that the way back works and a place can be kept. A token is never in it. */
import { signal } from '@preact/signals'

/** The views, in the order of the menu. */
export const VIEWS = ['decisions', 'sandbox', 'refused', 'tunnels', 'allow', 'explain', 'audit', 'health'] as const

/** One of {@link VIEWS}. */
export type View = (typeof VIEWS)[number]

/** A view, and of what. */
export interface Place {
  readonly view: View
  readonly of: Readonly<Record<string, string>>
}

/** Where we are. */
export const place = signal<Place>(read())

window.addEventListener('hashchange', () => (place.value = read()))

/** The link to a view. Nothing from outside is ever part of a link: what is told of the view goes through {@link go}. */
export function linkTo(view: View): string {
  return `#/${view}`
}

/** Goes there; `instead` leaves no step in the way back. */
export function go(view: View, of: Readonly<Record<string, string | undefined>> = {}, instead = false): void {
  const told = Object.entries(of).filter((pair): pair is [string, string] => pair[1] !== undefined && pair[1] !== '')
  const query = new URLSearchParams(told).toString()
  const hash = `#/${view}${query === '' ? '' : `?${query}`}`
  if (instead) history.replaceState(null, '', hash)
  else history.pushState(null, '', hash)
  place.value = read()
}

function read(): Place {
  const [name, query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2)
  return {
    view: VIEWS.find((view) => view === name) ?? 'decisions',
    of: Object.fromEntries(new URLSearchParams(query)),
  }
}
