/** Measures for `subjects-of-nobody.ts` what it is asked for: `node bench/nobody-process.ts FOLDER MIB`, with a channel. Ends when that is closed. */
import { bareBubblewrap, bareSrt, sandboxes, type Subject } from './sandbox-subjects.ts'
import { type Answer, FIGURES, type Introduction, type Question } from './subjects-of-nobody.ts'

const [folder = '', mib = ''] = process.argv.slice(2)
const setting = { runtimeRoot: folder, mib: Number(mib) }
const BARE = 'bwrap (nobody)'
const subjects: readonly Subject[] = [
  bareBubblewrap(BARE),
  bareSrt('srt (nobody)', BARE, folder),
  await sandboxes(setting, 'process (nobody)', BARE, { tier: 'process' }),
  await sandboxes(setting, 'process, srt (nobody)', BARE, { tier: 'process', engine: 'srt' }),
]

process.on('message', (question: Question) => void answer(question).then(say))
process.once('disconnect', () => void Promise.all(subjects.map(({ close }) => close())).then(() => process.exit(0)))
say({
  subjects: subjects.map((subject) => ({
    name: subject.name,
    ...(subject.peer !== undefined && { peer: subject.peer }),
    figures: FIGURES.filter((figure) => subject[figure] !== undefined),
  })),
})

/** Whoever asked may be gone. */
function say(what: Introduction | Answer): void {
  if (process.connected) process.send?.(what)
}

async function answer({ subject, figure }: Question): Promise<Answer> {
  try {
    const take = subjects.find(({ name }) => name === subject)?.[figure]
    return take === undefined ? { error: 'no such figure' } : { value: await take() }
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) }
  }
}
