import { describeNeeding } from '../needs.ts'
import { containerSubject } from './container-subject.ts'
import { runConformance } from './run-conformance.ts'

describeNeeding(['root', 'namespaces', 'docker', 'busybox', 'gcc'], 'the docker backend keeps its promises', () => {
  runConformance(() => containerSubject({ runtime: 'docker' }))
})
