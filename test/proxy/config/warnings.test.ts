/** What is said of a configuration at the start, and what is not. */
import { expect, test } from 'vitest'
import { parseConfig } from '../../../proxy/config/parse.ts'
import type { ConfigInput } from '../../../proxy/config/schema.ts'
import { configWarnings, lacksOwnKey, NO_OWN_KEY } from '../../../proxy/config/warnings.ts'
import { startTestGateway } from '../../integration/test-gateway.ts'

function configOf(document: ConfigInput) {
  const parsed = parseConfig(document, { folder: '/' })
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
  return parsed.config
}

test.each([
  ['everything', ['0.0.0.0/0'], /169\.254\.169\.254, 100\.100\.100\.200, 168\.63\.129\.16, 192\.0\.0\.192/],
  ['link-local addresses', ['169.254.0.0/16'], /`169\.254\.0\.0\/16` opens .*169\.254\.169\.254\)/],
  ['unique local addresses', ['fc00::/7'], /fd00:ec2::254, fd20:ce::254, fd00:42::42/],
  ['the shared address space', ['100.64.0.0/10'], /100\.100\.100\.200/],
])('%s open metadata services', (_what, allowPrivate, warning) => {
  expect(configWarnings(configOf({ network: { allowPrivate } }))).toEqual([expect.stringMatching(warning)])
})

test.each([
  ['nothing', []],
  ['private networks', ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '127.0.0.0/8', 'fd12:3456::/32']],
  ['the very address, which nobody names by mistake', ['169.254.169.254', 'fd00:ec2::254/128']],
])('%s: no warning', (_what, allowPrivate) => {
  expect(configWarnings(configOf({ network: { allowPrivate } }))).toEqual([])
})

test('an issuer with `stateKeys` needs a key', () => {
  const own = configOf({ issuers: [{ issuer: 'a', algorithms: ['ES256'], stateKeys: true }] })
  expect([lacksOwnKey(own, 0), lacksOwnKey(own, 1), lacksOwnKey(configOf({}), 0)]).toEqual([true, false, false])
})

test('all of it is said at the start and at a reload; notes on sets that nobody uses are not', async () => {
  const logged: string[] = []
  const log = (_fields: object, message: string) => void logged.push(message)
  const notes = [
    { set: 'npm', text: 'about npm' },
    { set: 'apt', text: 'about apt' },
  ] as const
  const gateway = await startTestGateway(
    { policy: { ceiling: { kind: 'static', allowedHosts: ['@apt'] } } },
    { logger: { info: log, warn: log, error: log }, machineSets: { sets: { npm: [], apt: [] }, notes } },
  )
  try {
    expect(logged).toEqual(['about apt'])
    await gateway.gateway.reload(() =>
      gateway.config({
        network: { allowPrivate: ['169.254.0.0/16'] },
        issuers: [{ issuer: 'own', algorithms: ['ES256'], stateKeys: true }],
      }),
    )
    expect(logged.slice(1)).toEqual([
      `${NO_OWN_KEY}: \`sallyport keys generate\``,
      expect.stringContaining('169.254.169.254'),
    ])
  } finally {
    await gateway.close()
  }
})
