import { describeNeeding } from '../needs.ts'
import { containerSubject } from './container-subject.ts'
import { runConformance } from './run-conformance.ts'

const RUNTIMES = {
  runsc: {
    path: '/usr/bin/runsc',
    runtimeArgs: ['--network=none', '--platform=ptrace', '--host-uds=open'],
  },
}

describeNeeding(
  ['root', 'namespaces', 'docker', 'busybox', 'gcc', 'runsc'],
  'the runsc backend keeps its promises',
  () => {
    runConformance(() => containerSubject({ runtime: 'runsc' }, { runtimes: RUNTIMES }))
  },
)
