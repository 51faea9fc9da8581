/** The guest kernel's command line. Anybody inside can read it, so it holds nothing that matters. */

/** What it depends on. */
export interface KernelArguments {
  readonly engine: 'firecracker' | 'qemu'
  /** With drivers as modules; without, the kernel must have them built in. */
  readonly hasInitrd: boolean
  /** Of an emulated processor. */
  readonly emulatedKhz?: number | undefined
}

/** One line. */
export function kernelArguments({ engine, hasInitrd, emulatedKhz }: KernelArguments): string {
  return [
    'console=ttyS0', 'quiet', 'loglevel=1', 'panic=-1', 'random.trust_cpu=on',
    ...(engine === 'firecracker'
      ? ['reboot=k', 'i8042.noaux', 'i8042.nomux', 'i8042.dumbkbd', '8250.nr_uarts=1']
      : ['reboot=t']),
    ...(hasInitrd ? [] : ['root=/dev/vda', 'ro', 'rootfstype=squashfs', 'init=/usr/lib/sallyport/init']),
    ...(emulatedKhz === undefined ? [] : ['mitigations=off', 'nokaslr', `tsc_early_khz=${emulatedKhz}`]),
  ].join(' ') // prettier-ignore
}
