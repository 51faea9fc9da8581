/** How often a cache had what was asked for: plain numbers, so that counting costs next to nothing. Metrics read them when they are asked for. */
export interface CacheCounts {
  hits: number
  misses: number
}
