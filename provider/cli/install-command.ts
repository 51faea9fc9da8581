/** The one command that installs a package on this machine. */
import { accessSync, constants } from 'node:fs'
import path from 'node:path'

const MANAGERS = [
  ['apt-get', 'apt-get install -y'],
  ['dnf', 'dnf install -y'],
  ['apk', 'apk add'],
  ['pacman', 'pacman -S --noconfirm'],
  ['zypper', 'zypper install -y'],
] as const

/** For a package that is called the same everywhere, with `sudo` for whoever needs it; undefined where no package manager is known. */
export function installCommand(packageName: string, searchPath = process.env['PATH'] ?? ''): string | undefined {
  const found = MANAGERS.find(([program]) => isInPath(program, searchPath))
  if (found === undefined) return undefined
  return `${process.geteuid?.() === 0 ? '' : 'sudo '}${found[1]} ${packageName}`
}

/** Whether a program is there. Relative folders don't count: the present folder must not decide. */
export function isInPath(program: string, searchPath: string): boolean {
  return searchPath.split(path.delimiter).some((folder) => {
    if (!path.isAbsolute(folder)) return false
    try {
      accessSync(path.join(folder, program), constants.X_OK)
      return true
    } catch {
      return false
    }
  })
}
