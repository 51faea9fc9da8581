/** The conformance suite for what this process can't run itself. */
import fs from 'node:fs'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { workerFile } from '../../../provider/worker-file.ts'
import { describeNeeding } from '../needs.ts'
import { runElsewhere } from './elsewhere.ts'

const TIMEOUT_MS = 600_000
const NOBODY = 65_534
let folder: string

beforeEach(async () => {
  // Short, for sockets below it.
  folder = fs.mkdtempSync('/tmp/spe-')
  await workerFile()
})
afterEach(() => fs.rmSync(folder, { recursive: true, force: true }))

/** For backends whose commands have none, and those whose commands need no proxy. */
const OF_OTHER_BACKENDS = [
  'egress clients that need no proxy are told of none, and given no credentials',
  'egress credentials that clients are given are of their sandbox alone, and live for ten minutes at most',
]

describeNeeding(
  ['root', 'namespaces', 'docker', 'busybox', 'gcc'],
  'the docker backend with a network of the sandbox’s own keeps its promises',
  () => {
    test('in the network of the engine', { timeout: TIMEOUT_MS }, async () => {
      const through = ['unshare', '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh']
      const { passed, skipped, failed } = await runElsewhere('docker-internal.elsewhere.ts', through, { folder })
      expect(failed).toEqual([])
      expect(skipped).toEqual(['lifecycle a limit that the backend does not keep is refused', ...OF_OTHER_BACKENDS])
      expect(passed.length).toBeGreaterThan(45)
    })
  },
)

describeNeeding(
  ['bubblewrap', 'gcc', 'root', 'namespaces', 'socat', 'ripgrep'],
  'the process backend on the sandbox runtime keeps its promises',
  () => {
    test('as a user that is not root', { timeout: TIMEOUT_MS }, async () => {
      fs.chmodSync(folder, 0o755)
      const own = `${folder}/t`
      fs.mkdirSync(own, { mode: 0o700 })
      fs.chownSync(own, NOBODY, NOBODY)
      const become = ['setpriv', '--reuid', String(NOBODY), '--regid', String(NOBODY), '--clear-groups', '--']
      const { passed, skipped, failed } = await runElsewhere('srt.elsewhere.ts', become, {
        folder: own,
        env: { HOME: own, TMPDIR: own },
      })
      expect(failed).toEqual([])
      // No control group is its own.
      expect(skipped).toEqual([
        'lifecycle memory beyond the limit is not to be had, and the sandbox lives on where it says so',
        ...OF_OTHER_BACKENDS,
      ])
      expect(passed.length).toBeGreaterThan(45)
    })
  },
)
