import { expect, it } from 'vitest'
import { decideAddresses, decideName, explain } from '../../policies/index.ts'
import { address, allowing, destination, layers, network, operatorDenies, policy } from './make.ts'

const LAYERS = layers(
  operatorDenies('bad.example.com'),
  ['ceiling', policy({ kind: 'allow-all' })],
  ['tenant', allowing(['other.example.com']), 'report'],
  ['claim', allowing(['*.example.com'], ['8.8.8.0/24'])],
)
const API = destination('api.example.com:443')

it('shows what every layer says by itself, its mode, and the decision', () => {
  const explanation = explain(LAYERS, API, undefined, network())
  expect(explanation.version).toBe('test')
  expect(explanation.layers).toEqual([
    { layer: 'ceiling', mode: 'enforce', kind: 'static', verdict: { allows: true } },
    { layer: 'ceiling', mode: 'enforce', kind: 'allow-all', verdict: { allows: true } },
    { layer: 'tenant', mode: 'report', kind: 'static', verdict: { allows: false, reason: 'host_not_allowed' } },
    { layer: 'claim', mode: 'enforce', kind: 'static', verdict: { allows: true, rule: '*.example.com' } },
  ])
  expect(explanation.addresses).toEqual([])
  expect(explanation.decision).toEqual(decideName(LAYERS, API, network()))
})

it('goes on to the layers behind the one that refuses', () => {
  const closed = layers(['ceiling', policy({ kind: 'deny-all' })], ['claim', allowing(['api.example.com'])])
  const explanation = explain(closed, API, undefined, network())
  expect(explanation.layers.map(({ verdict }) => verdict.allows)).toEqual([false, true])
  expect(explanation.decision).toMatchObject({ effective: 'deny', layer: 'ceiling' })
})

it('judges the addresses it is given, and carries no permit', () => {
  const answer = ['1.1.1.1', '::ffff:8.8.8.8', '10.0.0.1'].map(address)
  const explanation = explain(LAYERS, API, answer, network())
  expect(explanation.addresses).toEqual([
    { address: '1.1.1.1', prohibited: false, class: 'public' },
    { address: '::ffff:8.8.8.8', prohibited: false, class: 'mapped' },
    { address: '10.0.0.1', prohibited: true, class: 'private' },
  ])
  expect(explanation.layers.at(-1)?.verdict).toEqual({ allows: false, reason: 'host_denied', rule: '8.8.8.0/24' })
  expect(explanation.decision).toEqual(decideAddresses(LAYERS, API, answer, network()))
  expect(explain(LAYERS, API, [address('1.1.1.1')], network()).decision).not.toHaveProperty('permit')
})

it('judges a literal without being given it', () => {
  const explanation = explain(LAYERS, destination('[::1]:443'), undefined, network())
  expect(explanation.addresses).toEqual([{ address: '::1', prohibited: true, class: 'loopback' }])
  expect(explanation.decision.effective).toBe('deny')
})
