/** Why a file could not be read, in words for whoever named it. */

const WORDS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EISDIR: 'it is a folder',
  ENOTDIR: 'no such folder',
}

/** Such as `no such file`; the code of the system where there is no better word. Never the text of the error, which may hold more. */
export function whyUnreadable(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault'
  return WORDS[code] ?? code
}
