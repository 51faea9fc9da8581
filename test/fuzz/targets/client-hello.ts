/** The first bytes of a TLS client, and what lets them through. */
import {
  ClientHelloReader,
  type HelloResult,
  judgeServerName,
  MAX_HELD_BYTES,
} from '../../../proxy/relay/client-hello.ts'
import { type GateVerdict, HelloGate } from '../../../proxy/relay/hello-gate.ts'
import { ServerHelloWatch } from '../../../proxy/relay/server-hello.ts'
import { CHANGE_CIPHER, hello, helloMessage, records, serverHelloMessage } from '../../proxy/relay/hellos.ts'
import { pieces } from '../random.ts'
import { hold, same, type Target } from '../target.ts'

const NAMED = helloMessage({ names: ['host.example'] })
const SEEDS = [
  records(NAMED),
  records(NAMED, 7),
  hello(),
  hello('other.example'),
  records(helloMessage({ bare: true })),
  records(helloMessage({ names: ['Host.Example'], extensions: [[0xfe0d, Buffer.alloc(40, 7)]] })),
  records(helloMessage({ names: ['host.example'], later: [[21, Buffer.alloc(3000)]] })),
  Buffer.concat([records(NAMED), CHANGE_CIPHER, records(NAMED)]),
  Buffer.concat([records(NAMED), CHANGE_CIPHER, hello('other.example')]),
  records(serverHelloMessage()),
  Buffer.concat([records(serverHelloMessage(true)), CHANGE_CIPHER, records(serverHelloMessage())]),
]

/** Opens the target. */
export function clientHello(): Target {
  return {
    name: 'client-hello',
    maxBytes: 40 * 1024,
    maxCpuMs: 250,
    seeds: SEEDS,
    words: [
      '\x16\x03\x01',
      '\x16\x03\x03',
      '\x01\x00\x00',
      '\x00\x00',
      '\xfe\x0d',
      '\x17\x03\x03',
      '\x14\x03\x03\x00\x01\x01',
      'host.example',
    ],
    run: (input) => {
      const whole = readHello([input])
      const parts = pieces(input)
      const inPieces = readHello(parts)
      hold(inPieces.result.state === whole.result.state, 'a hello in pieces is read as another than the whole', () => [
        whole.result,
        inPieces.result,
      ])
      if (whole.result.state === 'done') {
        same(inPieces.result, whole.result, 'a hello in pieces says something else than the whole')
        hold(inPieces.helloBytes === whole.helloBytes, 'a hello in pieces has another length than the whole')
        checkHello(whole.result)
      }
      checkGate(input, parts)
      const settled = [[input], parts].map((chunks) => {
        const watch = new ServerHelloWatch()
        for (const chunk of chunks) watch.push(chunk)
        return watch.isSettled
      })
      hold(settled[0] === settled[1], 'what a server answers is read as something else in pieces')
    },
  }
}

function readHello(chunks: readonly Buffer[]): { readonly result: HelloResult; readonly helloBytes: number } {
  const reader = new ClientHelloReader()
  let result: HelloResult = { state: 'more' }
  let pushed = 0
  for (const chunk of chunks) {
    result = reader.push(chunk)
    pushed += chunk.length
    if (result.state !== 'more') break
    hold(pushed <= MAX_HELD_BYTES, 'more is held than may be', () => pushed)
  }
  const { helloBytes } = reader
  const released = reader.release()
  const all = Buffer.concat([...chunks])
  hold(released.equals(all.subarray(0, released.length)), 'what is released is not what came')
  hold(result.state !== 'done' || helloBytes <= released.length, 'a hello is longer than what came')
  return { result, helloBytes }
}

function checkHello({ hello }: HelloResult & { readonly state: 'done' }): void {
  const name = hello.serverName
  hold(name === undefined || /^[0-9a-z._-]{1,255}$/.test(name), 'a server name is not canonical', () => name)
  hold(
    judgeServerName(hello, 'host.example', true) === undefined || name !== 'host.example',
    'the right name is refused',
  )
  hold(
    judgeServerName(hello, 'other.example', true) !== undefined || name === 'other.example',
    'another name is let through',
  )
}

/** Whatever comes out came in, in order, and nothing of a refused hello comes out. */
function checkGate(input: Buffer, parts: readonly Buffer[]): void {
  const ways = [[input], parts].map((chunks) => {
    const names: (string | undefined)[] = []
    const judge = (hello: { readonly serverName: string | undefined }) => {
      names.push(hello.serverName)
      return hello.serverName === 'host.example' ? undefined : ('sni_mismatch' as const)
    }
    const gate = new HelloGate({ judge, timeoutMs: 2 ** 30 }, () => undefined)
    const out: Buffer[] = []
    let verdict: GateVerdict = 'hold'
    for (const chunk of chunks) {
      verdict = gate.push(Buffer.from(chunk))
      if (verdict === 'hold') continue
      if ('refuse' in verdict) break
      out.push(Buffer.from(verdict.release))
    }
    gate.close()
    return { out: Buffer.concat(out), names, isRefused: verdict !== 'hold' && 'refuse' in verdict }
  })
  const [whole, inPieces] = ways
  hold(whole !== undefined && inPieces !== undefined, 'both ways were gone')
  for (const { out, names } of ways) {
    hold(out.equals(input.subarray(0, out.length)), 'the gate changes what it lets through')
    hold(out.length === 0 || names[0] === 'host.example', 'bytes go up before a hello was approved', () => names)
  }
  hold(whole.isRefused === inPieces.isRefused, 'the gate refuses in pieces what it lets through whole, or the reverse')
  same(whole.names, inPieces.names, 'the gate judges other hellos in pieces')
  if (!whole.isRefused) hold(whole.out.equals(inPieces.out), 'the gate lets other bytes through in pieces')
}
