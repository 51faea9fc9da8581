/** What stands for machines elsewhere is what it says: reached by the host, and reaching of it one port alone. */
import http from 'node:http'
import net from 'node:net'
import fs from 'node:fs'
import { execFileSync } from 'node:child_process'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { INSIDE } from '../../../provider/backends/inside.ts'
import { createWorkerClient, type WorkerClient } from '../../../provider/worker-client.ts'
import { describeNeeding } from '../needs.ts'
import { type Guest, openHostAddress, startGuest } from './guest.ts'

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 })
const TOKEN = 'a'.repeat(43)

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces'], 'a guest', () => {
  describe.each([4, 6] as const)('of family %i', (family) => {
    let guest: Guest
    let client: WorkerClient
    let host: Awaited<ReturnType<typeof openHostAddress>>
    let other: Awaited<ReturnType<typeof openHostAddress>>
    const servers: net.Server[] = []
    const listen = async (address: string, port: number): Promise<number> => {
      const server = http.createServer((_request, response) => response.end('reached'))
      servers.push(server)
      await new Promise<void>((resolve) => server.listen(port, address, resolve))
      return (server.address() as net.AddressInfo).port
    }
    let gateway: number
    let beside: number

    beforeAll(async () => {
      host = await openHostAddress(family)
      other = await openHostAddress(family)
      gateway = await listen(host.address, 0)
      beside = await listen(host.address, 0)
      await listen(other.address, gateway)
      guest = await startGuest({
        settings: { token: TOKEN, listen: { host: '::', port: 2024 }, roots: [{ path: INSIDE.workspace, writable: true }] }, // prettier-ignore
        files: [{ path: '/etc/sallyport/note', content: 'noted', mode: 0o600 }],
        gateway: { host: host.address, port: gateway },
        family,
      })
      client = createWorkerClient({
        token: TOKEN,
        connect: () =>
          new Promise((resolve, reject) => {
            const socket = net.connect(guest.port, guest.address, () => resolve(socket)).once('error', reject)
          }),
      })
      await vi.waitFor(() => client.health(), { timeout: 30_000 })
    })
    afterAll(async () => {
      await guest.stop()
      await guest.ended
      for (const server of servers) server.close()
      await host.close()
      await other.close()
    })

    test('runs commands as a user, and as root for the platform', async () => {
      const { stdout } = await client.execute({ command: 'id -u; cat /etc/sallyport/note; touch here && echo written' })
      expect(stdout).toBe('1000\nwritten\n')
      expect(await guest.exec(['sh', '-c', 'id -u; cat /etc/sallyport/note; cat; exit 3'], { input: ' and read' })).toEqual({ exitCode: 3, stdout: '0\nnoted and read', stderr: '' }) // prettier-ignore
    })

    test('reaches the gateway and nothing else', async () => {
      const targets = [
        { host: host.address, port: gateway },
        { host: host.address, port: beside },
        { host: other.address, port: gateway },
        { host: '127.0.0.1', port: gateway },
        { host: '192.0.2.1', port: 443 },
      ]
      const nobody = { host: '127.0.0.1', port: 1 }
      const { tcp } = await client.probe({ tcp: targets, udp: [], gateway: nobody, destination: '0.0.0.0:1' })
      expect(tcp.map((outcome) => outcome === 'connected')).toEqual([true, false, false, false, false])
    })

    test('is gone when it is stopped, and leaves nothing', async () => {
      const shortLived = await startGuest({ command: ['sleep', '600'], gateway: { port: gateway }, family })
      expect((await shortLived.exec(['ip', '-br', 'address'])).stdout).toContain(shortLived.address)
      await shortLived.stop()
      const left = [execFileSync('ip', ['address'], { encoding: 'utf8' }), ...fs.readdirSync('/tmp')].join('\n')
      expect(left).not.toContain(shortLived.address)
    })

    test('ends by itself with its command', async () => {
      const shortLived = await startGuest({ command: ['sh', '-c', 'exit 7'], gateway: { port: gateway }, family })
      await shortLived.ended
      expect(shortLived.exitCode()).toBe(7)
    })
  })
})
