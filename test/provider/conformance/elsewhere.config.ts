import { defineConfig } from 'vitest/config'

export default defineConfig({
  cacheDir: process.env['ELSEWHERE_CACHE'] ?? 'node_modules/.vite',
  test: { include: ['test/**/*.elsewhere.ts'], pool: 'forks', maxWorkers: 1 },
})
