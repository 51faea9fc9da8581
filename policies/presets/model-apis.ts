/** To come. */
import type { Preset } from './preset.ts'

/** One set for each. */
export const MODEL_APIS: readonly Preset[] = []
