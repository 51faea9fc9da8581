/** What a host shows of a machine besides its processes and its folders. */
import fs from 'node:fs'
import path from 'node:path'

/** Whatever names a sandbox on the host besides its processes: control groups and namespaces. */
export function traces(id: string): readonly string[] {
  const word = id.replace('sbx_', '')
  const groups = fs.existsSync('/sys/fs/cgroup') ? fs.globSync(`/sys/fs/cgroup/**/*${word}*`) : []
  const namespaces = fs.existsSync('/run/netns')
    ? fs.readdirSync('/run/netns').filter((name) => name.includes(word))
    : []
  const claims = '/run/sallyport-microvm/uids'
  const users = fs.existsSync(claims)
    ? fs.readdirSync(claims).filter((name) => {
        try {
          return fs.readFileSync(path.join(claims, name), 'utf8').includes(word)
        } catch {
          return false
        }
      })
    : []
  const mounts = fs.readFileSync('/proc/self/mounts', 'utf8').split('\n').filter((line) => line.includes(word)) // prettier-ignore
  return [...groups, ...namespaces, ...users, ...mounts]
}
