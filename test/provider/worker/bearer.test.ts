/** The bearer of a worker, and the one that takes its place when the first came by a way that others can look at. */
import { expect, test } from 'vitest'
import { createWorkerClient } from '../../../provider/worker-client.ts'
import { startWorker } from './start-worker.ts'

const NEXT = 'n'.repeat(43)
const LOST = { code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' }

test('takes the place of the first one: from then on that opens nothing', async () => {
  await using worker = await startWorker()
  const next = createWorkerClient({ connect: worker.connect, token: NEXT })
  await expect(next.health()).rejects.toMatchObject(LOST)
  await worker.client.configure({ token: NEXT, env: { WHO: 'second' } })
  await expect(worker.client.health()).rejects.toMatchObject(LOST)
  await expect(worker.client.configure({ token: 'f'.repeat(43) })).rejects.toMatchObject(LOST)
  await expect(worker.client.execute({ command: 'true', args: [] })).rejects.toMatchObject(LOST)
  expect((await next.execute({ command: 'echo $WHO' })).stdout).toBe('second\n')
})

test('is 32 visible ASCII characters or more; what is not changes nothing, and is not repeated', async () => {
  await using worker = await startWorker()
  for (const bad of ['short-secret-1', `${'x'.repeat(40)} y`, `${'x'.repeat(40)}\n`, 7, null]) {
    const refusal: unknown = await worker.client.configure({ token: bad as string, env: { WHO: 'nobody' } }).catch((error: unknown) => error) // prettier-ignore
    expect(refusal).toMatchObject({ code: 'SALLYPORT_SANDBOX_BACKEND_FAILED' })
    expect(String(refusal)).not.toContain('short-secret-1')
  }
  expect((await worker.client.execute({ command: 'echo ${WHO-unset}' })).stdout).toBe('unset\n')
})

test('stays when another part of the same configuration can not be', async () => {
  await using worker = await startWorker()
  await expect(worker.client.configure({ token: NEXT, gatewayToken: 'abc' })).rejects.toThrow('carries nothing')
  expect((await worker.client.health()).running).toBe(0)
})
