import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    pool: 'forks',
    maxWorkers: 2,
    // Where the machine is shared: what only its load broke passes the second time, and what is broken does not.
    retry: process.env['CI'] === 'true' ? 1 : 0,
    reporters:
      process.env['CI'] === 'true' ? ['default', ['json', { outputFile: 'test-artefacts/results.json' }]] : ['default'],
  },
})
