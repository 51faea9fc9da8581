/** Serves bare repositories by git's own CGI program, over whatever server calls it. @see RFC 3875 */
import { spawn } from 'node:child_process'
import type http from 'node:http'

/** A listener that answers from the repositories below `folder`; they may be pushed to when their `http.receivepack` says so. */
export function gitBackend(folder: string): http.RequestListener {
  return (request, response) => {
    const url = new URL(request.url ?? '/', 'http://origin.invalid')
    const encoding = request.headers['content-encoding']
    const child = spawn('git', ['http-backend'], {
      env: {
        PATH: process.env['PATH'],
        GIT_PROJECT_ROOT: folder,
        GIT_HTTP_EXPORT_ALL: '1',
        GIT_CONFIG_NOSYSTEM: '1',
        PATH_INFO: url.pathname,
        QUERY_STRING: url.search.slice(1),
        REQUEST_METHOD: request.method ?? 'GET',
        CONTENT_TYPE: request.headers['content-type'] ?? '',
        GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
        ...(encoding !== undefined && { HTTP_CONTENT_ENCODING: encoding }),
        ...(request.headers['content-length'] !== undefined && { CONTENT_LENGTH: request.headers['content-length'] }),
      },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    request.pipe(child.stdin).on('error', () => undefined)
    answerFrom(child.stdout, response)
  }
}

/** Header fields of CGI, then the body as it comes. */
function answerFrom(output: NodeJS.ReadableStream, response: http.ServerResponse): void {
  let head: Buffer | undefined = Buffer.alloc(0)
  output.on('data', (chunk: Buffer) => {
    if (!head) return void response.write(chunk)
    head = Buffer.concat([head, chunk])
    const end = head.indexOf('\r\n\r\n')
    if (end < 0) return
    for (const line of head.subarray(0, end).toString('latin1').split('\r\n')) {
      const [name = '', value = ''] = line.split(/: */, 2)
      if (name.toLowerCase() === 'status') response.statusCode = parseInt(value)
      else response.setHeader(name, value)
    }
    response.write(head.subarray(end + 4))
    head = undefined
  })
  output.on('end', () => response.end())
}
