/**
 * Whether the gateway is ready for connections: exit code 0, or 1 with one line that says what is wrong. For images without a shell.
 *
 * Asks the admin listener, which is where `SALLYPORT_HEALTH` says: `address:port` or `unix:/path`; by default `SALLYPORT_LISTEN_ADMIN`, else 127.0.0.1:9090.
 */
import http from 'node:http'
import process from 'node:process'

const { SALLYPORT_HEALTH, SALLYPORT_LISTEN_ADMIN } = process.env
const where = (SALLYPORT_HEALTH ?? SALLYPORT_LISTEN_ADMIN ?? '127.0.0.1:9090').replace(/^0\.0\.0\.0:/, '127.0.0.1:')
const target = where.startsWith('unix:')
  ? { socketPath: where.slice('unix:'.length) }
  : { host: where.replace(/:\d+$/, '').replace(/^\[|\]$/g, ''), port: Number(/\d+$/.exec(where)?.[0]) }

const request = http.get({ ...target, path: '/readyz', timeout: 3_000 }, (response) => {
  response.resume()
  if (response.statusCode !== 200) fail(`not ready: status ${response.statusCode ?? 0}`)
})
request.on('timeout', () => request.destroy(new Error('no answer in time')))
request.on('error', (error) => fail(`not ready: ${error.message}`))

/** @param {string} what */
function fail(what) {
  process.stdout.write(`${what}\n`)
  process.exitCode = 1
}
