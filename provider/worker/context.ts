/** What every route of one worker shares. */
import type { ChildPipes } from './child-pipes.ts'
import type { CommandDefaults } from './command.ts'
import type { Confinement } from './confinement.ts'
import type { Processes } from './processes.ts'
import type { Run } from './run.ts'

/** One worker. */
export interface WorkerContext {
  readonly pipes: ChildPipes
  readonly confinement: Confinement
  readonly defaults: CommandDefaults
  /** Commands that somebody waits for, by id; undefined while one is being started. */
  readonly commands: Map<string, Run | undefined>
  readonly processes: Processes
  /** What every request must carry. */
  readonly token: string
  /** The next value of the mark that finds a command's processes. */
  nextMark(): string
  /** Takes the place of the bearer, from the next request on: the first one may have come by a way that others can look at. */
  setToken(token: string): void
  /** Takes the place of the children's environment. */
  setEnvironment(env: Readonly<Record<string, string>>): void
  /** @throws Fault `bad_request` for a worker without a way to a gateway of its own */
  setGatewayToken(token: string, cutTunnels: boolean): void
  /** Milliseconds from now. */
  setTimeToLive(milliseconds: number): void
}

/** Commands and background processes that may run at the same time. */
export const MAX_RUNNING = 512
