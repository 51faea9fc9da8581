/** Another process, as the owner of sandboxes: by its name, alive until told otherwise. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'

/** Starts one. */
export async function otherProcess(): Promise<{ readonly owner: string; readonly end: () => Promise<void> }> {
  const module = path.join(import.meta.dirname, '../../provider/owner.ts')
  const script = `const { ownerOfThisProcess } = await import(${JSON.stringify(module)}); console.log(ownerOfThisProcess()); process.stdin.resume()`
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['pipe', 'pipe', 'inherit'] })
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  return {
    owner: line.toString().trim(),
    end: async () => {
      if (child.exitCode !== null) return
      const exited = once(child, 'exit')
      child.stdin.end()
      await exited
    },
  }
}
