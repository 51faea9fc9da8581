/**
 * A chosen part of the suite, for time: an emulated guest boots in ten seconds or more. `SALLYPORT_WHOLE_CONFORMANCE=1` runs all of it, which takes about
 * half an hour.
 */
import { describeNeeding } from '../needs.ts'
import { PATIENCE_MS, qemuSubject } from '../microvm/qemu-subject.ts'
import { runConformance } from './run-conformance.ts'

/** Those that say most of the wall and of the two channels, on as few machines as possible. */
const CHOSEN = [
  'a new sandbox is ready, has an id and a root of its own, and is listed with its labels',
  'arguments arrive as they are, whatever a shell would make of them',
  'a command without arguments is a line for the shell; its streams and its exit code come back apart',
  'a timeout kills the whole process group',
  'nothing is read unless it is given, and what is given arrives whole',
  'twenty commands at once keep their outputs apart',
  'what was written is read back, byte by byte, and replaced whole',
  'an allowed host is reached, by CONNECT and by a plain request',
  'a refused host is refused, with the reason',
  'no connection goes straight out',
  'no connection reaches the ports of the host',
  'no datagram and no echo goes straight out, and no question for a name is answered',
  'no socket can be made that a network namespace does not confine',
  'no name is resolved inside',
  'the bearer of the worker is nowhere that a command can look',
  'a worker that is killed from inside is noticed: the command’s outcome is unknown, and nothing is left',
]

describeNeeding(
  ['root', 'qemu', 'mmdebstrap', 'gcc'],
  'the self-hosted backend keeps its promises with real guests, under QEMU',
  () => {
    runConformance(qemuSubject, {
      chosen: process.env['SALLYPORT_WHOLE_CONFORMANCE'] === '1' ? undefined : CHOSEN,
      checkTimeoutMs: PATIENCE_MS,
    })
  },
)
