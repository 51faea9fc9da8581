/** May a machine's program use KVM? It runs as a user of its own, not as whoever starts it. */
import { accessSync, constants, statSync } from 'node:fs'

const ANYBODY = constants.S_IROTH | constants.S_IWOTH
const GROUP = constants.S_IRGRP | constants.S_IWGRP

/** Groups that open the device for a program of `uid` (absent: of our own user); `undefined` where none does, or only that of root, which no machine is given. */
export function kvmGroups(device: string, uid: number | undefined): readonly number[] | undefined {
  try {
    accessSync(device, constants.R_OK | constants.W_OK)
    const { mode, gid } = statSync(device)
    if (uid === undefined || uid === 0 || (mode & ANYBODY) === ANYBODY) return []
    return (mode & GROUP) === GROUP && gid !== 0 ? [gid] : undefined
  } catch {
    return undefined
  }
}
