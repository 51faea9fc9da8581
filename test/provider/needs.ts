/** What a machine must have for the tests of sandboxes. What is missing skips them with the reason; in CI, which installs it, it is a failure. */
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import { describe, test } from 'vitest'

interface Need {
  /** Ends with 0 where it is there. */
  readonly probe: readonly [string, ...string[]]
  readonly reason: string
}

const NEEDS = {
  bubblewrap: {
    probe: ['bwrap', '--unshare-user', '--unshare-net', '--ro-bind', '/', '/', 'true'],
    reason: 'bubblewrap does not work here (Debian: bubblewrap)',
  },
  gcc: { probe: ['gcc', '--version'], reason: 'there is no C compiler (Debian: gcc, libc6-dev)' },
  root: {
    probe: ['sh', '-c', 'test "$(id -u)" = 0'],
    reason: 'only root can make network namespaces and become another user',
  },
  namespaces: {
    probe: ['sh', '-c', 'unshare --net ip link show lo && nsenter --version && setpriv --version'],
    reason: 'unshare, nsenter, setpriv or ip is missing (Debian: util-linux, iproute2)',
  },
  socat: { probe: ['socat', '-V'], reason: 'socat is not installed (Debian: socat)' },
  ripgrep: { probe: ['rg', '--version'], reason: 'ripgrep is not installed (Debian: ripgrep)' },
  curl: { probe: ['curl', '--version'], reason: 'curl is not installed (Debian: curl)' },
  docker: {
    probe: ['dockerd', '--version'],
    reason: 'there is no Docker engine (Debian: docker.io, iptables)',
  },
  compose: {
    probe: ['docker-compose', 'version'],
    reason: 'docker-compose is not installed (Debian: docker-compose)',
  },
  kubernetes: {
    probe: ['test', '-d', path.join(import.meta.dirname, '../deploy/kubernetes-tools/node_modules/kubernetes-models')],
    reason: 'what renders and checks manifests is not installed (npm ci --prefix test/deploy/kubernetes-tools)',
  },
  python3: { probe: ['python3', '--version'], reason: 'python3 is not installed (Debian: python3)' },
  nftables: { probe: ['nft', '--version'], reason: 'nft is not installed (Debian: nftables)' },
  systemd: {
    probe: ['systemd-analyze', '--version'],
    reason: 'systemd-analyze is not installed (Debian: systemd)',
  },
  prometheus: {
    probe: ['sh', '-c', 'promtool --version && prometheus --version'],
    reason: 'Prometheus is not installed (Debian: prometheus)',
  },
  runsc: { probe: ['runsc', '--version'], reason: 'gVisor is not installed (Debian: runsc)' },
  qemu: {
    probe: ['sh', '-c', 'qemu-system-x86_64 -M microvm,help >/dev/null && vhost-device-vsock --version'],
    reason:
      'QEMU or its vsock device is not installed (Debian: qemu-system-x86; after 13, or as .ci/run has it: vhost-device-vsock)',
  },
  mmdebstrap: {
    probe: ['sh', '-c', 'mmdebstrap --version && mksquashfs -version && cpio --version && xz --version'],
    reason: 'what builds a root file system is missing (Debian: mmdebstrap, squashfs-tools, cpio, xz-utils)',
  },
  busybox: {
    probe: ['sh', '-c', 'busybox --list && ! ldd "$(command -v busybox)"'],
    reason: 'there is no static busybox to make images of (Debian: busybox-static)',
  },
} satisfies Record<string, Need>

/** A `describe` for tests that need all of `needs`. */
export function describeNeeding(needs: readonly (keyof typeof NEEDS)[], name: string, body: () => void): void {
  const missing = needs
    .map((need) => NEEDS[need])
    .find(({ probe: [file, ...args] }) => spawnSync(file, args, { stdio: 'ignore' }).status !== 0)
  if (missing === undefined) {
    describe(name, body)
    return
  }
  if (process.env['CI'] === 'true') {
    test(name, () => {
      throw new Error(missing.reason)
    })
    return
  }
  console.log(`skipped: ${name}: ${missing.reason}`)
  describe.skip(`${name} (${missing.reason})`, body)
}
