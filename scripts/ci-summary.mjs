/** Prints what was skipped and why, what failed, and the closing line of CI. Plain JavaScript: it runs on whatever Node is there. */
import fs from 'node:fs'
import console from 'node:console'
import process from 'node:process'
import { URL } from 'node:url'

const status = Number(process.argv[2] ?? 0)
const file = new URL('../test-artefacts/results.json', import.meta.url)
if (!fs.existsSync(file)) {
  console.log('no test results were written')
  console.log('0 passed, 1 failed, 0 skipped')
  process.exit(1)
}
const results = JSON.parse(fs.readFileSync(file, 'utf8'))
for (const { name, assertionResults } of results.testResults) {
  for (const { fullName, status: outcome, failureMessages = [] } of assertionResults) {
    const said = outcome === 'passed' && failureMessages.length > 0 ? 'passed the second time' : outcome
    if (said !== 'passed') console.log(`${said}: ${name.replace(process.cwd() + '/', '')}: ${fullName}`)
    for (const message of failureMessages) console.log(message.split('\n').slice(0, 4).join('\n'))
  }
}
const skipped = results.numPendingTests + results.numTodoTests
let failed =
  results.numFailedTests +
  results.testResults.filter((one) => one.status === 'failed' && one.assertionResults.length === 0).length
if (status !== 0 && failed === 0) {
  console.log('a step outside the tests failed; see above')
  failed = 1
}
console.log(`${results.numPassedTests} passed, ${failed} failed, ${skipped} skipped`)
process.exit(failed === 0 ? 0 : 1)
