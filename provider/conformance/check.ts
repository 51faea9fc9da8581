/** What a check of the conformance suite is: a name, and something that throws when the promise is not kept. Needs no test runner. */
import type { EmbeddedGatewayOptions } from '../egress/embedded.ts'
import type { SandboxCapabilities, SandboxProvider } from '../sandbox.ts'
import type { EgressPolicy } from '../../policies/index.ts'

/** What is checked: a way to make providers of one backend. */
export interface ConformanceSubject {
  /** A fresh provider over a runtime root of its own that all providers of this subject share; the check closes it. */
  readonly createProvider: (options: { readonly defaultEgress: EgressPolicy; readonly gateway: EmbeddedGatewayOptions }) => Promise<SandboxProvider> | SandboxProvider
  /** A Node inside the sandbox, for the clients that the checks run. */
  readonly node: string
  /** On the host: a static program built from `test/provider/probe.c`. Without it what needs it is skipped. */
  readonly probe?: string
  /** What the platform and the host still hold of any sandbox, a line each; empty when nothing is left. */
  readonly leftovers?: () => Promise<readonly string[]>
}

/** One promise. */
export interface ConformanceCheck {
  /** A sentence, unique. */
  readonly name: string
  readonly area: 'lifecycle' | 'exec' | 'files' | 'concurrency' | 'egress' | 'crash'
  /** Why it does not apply; undefined when it does. */
  readonly skip?: (capabilities: SandboxCapabilities, subject: ConformanceSubject) => string | undefined
  /** Milliseconds it may take on a busy machine; 60,000 by default. */
  readonly timeoutMs?: number
  /** @throws AssertionError when the promise is not kept */
  readonly run: (subject: ConformanceSubject) => Promise<void>
}
