/** Inputs that are kept: each reaches code that those before it do not, or broke something once. One JSON text a line, a character for each byte. */
import fs from 'node:fs'

const fileOf = (target: string): URL => new URL(`./corpus/${target}.jsonl`, import.meta.url)

/** Those of a target. */
export function readCorpus(target: string): readonly Buffer[] {
  const file = fileOf(target)
  if (!fs.existsSync(file)) return []
  const lines = fs
    .readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
  return lines.map((line) => Buffer.from(JSON.parse(line) as string, 'latin1'))
}

/** One line of a corpus. */
export function corpusLine(input: Buffer): string {
  return JSON.stringify(input.toString('latin1')).replace(
    /[\x7f-\xff]/g,
    (character) => `\\u00${character.charCodeAt(0).toString(16)}`,
  )
}

/** Puts others in their place. */
export function writeCorpus(target: string, inputs: readonly Buffer[]): void {
  fs.writeFileSync(fileOf(target), inputs.map((input) => `${corpusLine(input)}\n`).join(''))
}
