/** Where systems fetch their packages. For what this machine is really set up for, there is `@apt`. */
import type { Preset } from './preset.ts'

/** One set for each system. */
export const OPERATING_SYSTEMS: readonly Preset[] = [
  {
    name: 'debian',
    opens: 'the package archive of Debian and its security updates',
    leavesClosed: 'other mirrors, snapshot.debian.org, the site, bug reports, third-party archives',
    entries: ['deb.debian.org', 'security.debian.org'],
  },
  {
    name: 'ubuntu',
    opens: 'the package archives of Ubuntu',
    // Anybody can publish a PPA; country mirrors are run by others.
    leavesClosed: 'PPAs (ppa.launchpadcontent.net), country mirrors, snaps, Ubuntu Pro, crash reports',
    entries: ['archive.ubuntu.com', 'security.ubuntu.com', 'ports.ubuntu.com'],
  },
  {
    name: 'alpine',
    opens: 'the package archive of Alpine',
    leavesClosed: 'other mirrors, the site, GitLab of Alpine',
    entries: ['dl-cdn.alpinelinux.org'],
  },
]
