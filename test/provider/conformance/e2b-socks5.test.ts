/** E2B is stood in for; its SOCKS5 proxy carries what machines open to the gateway, with a handle. */
import { describeNeeding } from '../needs.ts'
import { E2B_NEEDS, e2bSubject } from './e2b-subject.ts'
import { runConformance } from './run-conformance.ts'

describeNeeding(E2B_NEEDS, 'the backend for E2B by its SOCKS5 proxy keeps its promises', () => {
  runConformance(() => e2bSubject('socks5-proxy'))
})
