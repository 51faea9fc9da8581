/** The life of one container: made, started, watched, removed. */
import { Readable } from 'node:stream'
import type Docker from 'dockerode'
import { statusOf } from './docker-error.ts'

/** A container that was started. */
export interface RunningContainer {
  readonly id: string
  /** Resolves when it runs no more, also when the engine was restarted meanwhile. */
  readonly ended: Promise<void>
  /** What it wrote until now, at most 4 KiB, in one line. */
  readonly said: () => string
  /** Listens to what it writes no longer. */
  readonly detach: () => void
}

const MAX_SAID_BYTES = 4_096
const REMOVAL_PATIENCE_MS = 30_000
const RETRY_MS = 50
const ASK_AGAIN_MS = 1_000

/** Makes a container. The client would put the whole of it into the request's URL as well, were the two not told apart; engines refuse long ones. */
export function createContainer(
  docker: Docker,
  name: string,
  body: Docker.ContainerCreateOptions,
): Promise<Docker.Container> {
  const parts: Docker.ContainerCreateOptions & { readonly _query: object; readonly _body: object } = {
    _query: { name },
    _body: body,
  }
  return docker.createContainer(parts)
}

/** Starts a container that was created, and keeps what it writes. */
export async function startContainer(container: Docker.Container): Promise<RunningContainer> {
  const stream = await container.attach({ stream: true, stdout: true, stderr: true })
  let said = Buffer.alloc(0)
  stream.on('error', () => undefined)
  stream.on('data', (chunk: Buffer) => {
    if (said.length < MAX_SAID_BYTES) said = Buffer.concat([said, chunk]).subarray(0, MAX_SAID_BYTES)
  })
  const detach = (): void => {
    if (stream instanceof Readable) stream.destroy()
  }
  try {
    await container.start()
  } catch (error) {
    detach()
    throw error
  }
  return { id: container.id, ended: ended(container), said: () => textOf(said), detach }
}

/** Resolves when it runs no more; never rejects. */
export async function ended(container: Docker.Container): Promise<void> {
  for (;;) {
    try {
      await container.wait({ condition: 'not-running' })
      return
    } catch (error) {
      if (statusOf(error) === 404) return
    }
    // The engine went away. What ran may have survived it.
    await pause(ASK_AGAIN_MS)
  }
}

/** Removes it, running or not, with its volumes, and waits until the engine knows it no more. */
export async function removeContainer(container: Docker.Container): Promise<void> {
  const untilMs = performance.now() + REMOVAL_PATIENCE_MS
  for (;;) {
    try {
      await container.remove({ force: true, v: true })
    } catch (error) {
      const status = statusOf(error)
      if (status === 404) return
      // 409: its removal is under way already.
      if ((status !== 409 && status !== 500) || performance.now() > untilMs) throw error
    }
    if (await isGone(container)) return
    await pause(RETRY_MS)
  }
}

async function isGone(container: Docker.Container): Promise<boolean> {
  try {
    await container.inspect()
    return false
  } catch (error) {
    if (statusOf(error) === 404) return true
    throw error
  }
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds).unref())
}

/** The engine puts a head of eight bytes before each piece. */
function textOf(bytes: Buffer): string {
  let text = ''
  for (let offset = 0; offset + 8 <= bytes.length;) {
    const length = bytes.readUInt32BE(offset + 4)
    text += bytes.subarray(offset + 8, offset + 8 + length).toString('utf8')
    offset += 8 + length
  }
  return text.replaceAll(/[\x00-\x1f\x7f`]+/g, ' ').trim()
}
