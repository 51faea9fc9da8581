/** For a process that is in the network namespace of its engine: there a sandbox reaches its gateway over a bridge. */
import { containerSubject } from './container-subject.ts'
import { runConformance } from './run-conformance.ts'

runConformance(() => containerSubject({ runtime: 'docker', network: 'internal' }, { within: [] }))
