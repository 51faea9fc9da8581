/** The backends that the command line knows. */

/** All of them. */
export const BACKENDS = ['process', 'docker', 'runsc', 'passthrough'] as const

/** One of {@link BACKENDS}. */
export type BackendName = (typeof BACKENDS)[number]
