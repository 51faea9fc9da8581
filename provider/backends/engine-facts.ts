/**
 * What is known of a Docker engine and its images. Apart from the client's own types, so that whoever uses this package compiles without the optional
 * `dockerode`.
 */
import type { FilterArchitecture } from './syscalls.ts'

/** A runtime, as it is registered. */
export interface EngineRuntime {
  readonly name: string
  readonly path: string | undefined
  readonly args: readonly string[]
  /** Of runtimes that containerd starts by type. */
  readonly type: string | undefined
}

/** What an engine says of itself. */
export interface EngineFacts {
  /** Such as `20.10.24`. */
  readonly version: string
  readonly major: number
  readonly kernel: string
  readonly processors: number
  readonly architecture: FilterArchitecture
  readonly runtimes: readonly EngineRuntime[]
  /** What the engine runs on, such as `Docker Desktop`. */
  readonly system: string
}

/** What an engine has of an image. */
export interface ImageFacts {
  readonly id: string
  readonly env: Readonly<Record<string, string>>
  readonly labels: Readonly<Record<string, string>>
  readonly volumes: readonly string[]
}
