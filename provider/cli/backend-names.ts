/** The backends that the command line knows. */

/** All of them. */
export const BACKENDS = ['process', 'docker', 'runsc', 'passthrough'] as const

/** One of {@link BACKENDS}. */
export type BackendName = (typeof BACKENDS)[number]

/** Those whose sandboxes are listed, reaped and examined: one that shows no folder of the host is of no use to `run`. */
export const KNOWN_BACKENDS = [...BACKENDS, 'self-hosted', 'fly-machines', 'e2b', 'aci-standby-pool'] as const

/** One of {@link KNOWN_BACKENDS}. */
export type KnownBackendName = (typeof KNOWN_BACKENDS)[number]
