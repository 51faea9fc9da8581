/** What a check of the conformance suite is: a sentence, and something that throws when the promise is not kept. Needs no test runner. */
import type { SandboxProviderOptions } from '../provider-options.ts'
import type { SandboxProvider } from '../sandbox.ts'
import type { Bench } from './bench.ts'

/** What is checked: a way to make providers of one backend. */
export interface ConformanceSubject {
  /** A fresh provider over `runtimeRoot`, which all providers of this subject share. */
  readonly createProvider: (
    options: Required<Pick<SandboxProviderOptions, 'defaultEgress' | 'gateway'>>,
  ) => SandboxProvider
  /** Of this host, a literal that sandboxes elsewhere reach: the checks then start their gateway there. Without it the gateway is the provider's own. */
  readonly gatewayAddress?: string
  /**
   * Its sandboxes need no proxy, as `capabilities.transparentEgress` says: the gateway of the checks makes handles, and the origin is at port 80 of an
   * address of loopback, for which it takes Linux and root.
   */
  readonly transparentEgress?: boolean
  /** Absolute; made if it isn't there. */
  readonly runtimeRoot: string
  /** A Node inside the sandbox, for the clients that the checks run: its program, and what comes before its own arguments. */
  readonly node: readonly string[]
  /** On the host: the hostile program (`test/provider/probe.c`), built so that it runs inside. Without it, what needs it is skipped. */
  readonly probe?: string
  /** What platform and host still hold of a sandbox, a line each; empty when nothing is left. */
  readonly leftovers?: (sandboxId: string) => Promise<readonly string[]>
  /** Another process that makes a sandbox and is then killed; resolves to the sandbox's id when it is dead. */
  readonly abandon?: () => Promise<string>
}

/** One promise. */
export interface ConformanceCheck {
  /** A sentence, unique. */
  readonly name: string
  /** Why it does not apply; undefined when it does. */
  readonly skip?: (bench: Bench) => string | undefined
  /** @throws AssertionError when the promise is not kept */
  readonly run: (bench: Bench) => Promise<void>
}

/** Promises on one subject. */
export interface ConformanceArea {
  readonly name: string
  readonly checks: readonly ConformanceCheck[]
}
