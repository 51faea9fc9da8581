/** All that is fuzzed. */
import type { OpenTarget } from '../target.ts'
import { auditLog } from './audit-log.ts'
import { authority } from './authority.ts'
import { clientHello } from './client-hello.ts'
import { configuration } from './configuration.ts'
import { controlApi } from './control-api.ts'
import { httpHead } from './http-head.ts'
import { policy } from './policy.ts'
import { socks5 } from './socks5.ts'
import { token } from './token.ts'

/** By name. */
export const TARGETS: Readonly<Record<string, OpenTarget>> = {
  authority,
  'http-head': httpHead,
  socks5,
  'client-hello': clientHello,
  token,
  configuration,
  policy,
  'audit-log': auditLog,
  'control-api': controlApi,
}
