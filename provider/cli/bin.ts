#!/usr/bin/env node
/** The binary: checks the version of Node before anything is loaded that an old one can't read. */
import { nodeVersionFault } from '../../proxy/cli/node-version.ts'

const fault = nodeVersionFault(process.version)
if (fault === undefined) {
  const { main } = await import('./main.ts')
  process.exitCode = await main(process.argv.slice(2))
} else {
  process.stderr.write(`${fault}\n`)
  process.exitCode = 1
}
