/** Light or dark: as the system says, unless somebody chose. Remembered, since it says nothing about anybody. */
import { signal } from '@preact/signals'

/** What may be chosen. */
export const THEMES = ['system', 'light', 'dark'] as const

/** One of {@link THEMES}. */
export type Theme = (typeof THEMES)[number]

const KEY = 'sallyport-console-theme'

/** The one in force. */
export const theme = signal<Theme>(remembered())

/** Puts it on the page. */
export function applyTheme(chosen: Theme = theme.value): void {
  theme.value = chosen
  document.documentElement.dataset['theme'] = chosen
  try {
    localStorage.setItem(KEY, chosen)
  } catch {
    // A browser that keeps nothing: then it holds for this page.
  }
}

function remembered(): Theme {
  try {
    const kept = localStorage.getItem(KEY)
    return THEMES.find((each) => each === kept) ?? 'system'
  } catch {
    return 'system'
  }
}
