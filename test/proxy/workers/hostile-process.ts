/** Stands in for a worker that was taken over: says that it is to be read for four gigabytes, then waits to be ended. */
import net from 'node:net'

const channel = new net.Socket({ fd: 3 })
channel.resume()
channel.write(Buffer.from([0xff, 0xff, 0xff, 0xff, 0x7b]))
