/** E2B is stood in for; its firewall lets machines reach the gateway's address, and commands have a token. */
import { describeNeeding } from '../needs.ts'
import { E2B_NEEDS, e2bSubject } from './e2b-subject.ts'
import { runConformance } from './run-conformance.ts'

describeNeeding(E2B_NEEDS, 'the backend for E2B keeps its promises', () => {
  runConformance(() => e2bSubject('gateway-address'))
})
