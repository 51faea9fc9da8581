/**
 * Node's `http`, without what an `import` of it brings along: that reads every name that it exports, and one of them loads the whole of `fetch`, which each
 * start would then wait for.
 */
import type http from 'node:http'

const nodeHttp: typeof http = process.getBuiltinModule('node:http')
export default nodeHttp
