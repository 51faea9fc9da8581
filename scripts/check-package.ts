/** Packs the package as it would be published and checks the tarball: what is in it, its types, its entry points. */
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-pack-'))
try {
  const packed = run('npm', ['pack', '--silent', '--json', '--pack-destination', folder])
  const [{ filename, files }] = JSON.parse(packed.slice(packed.indexOf('['))) as [
    { filename: string; files: { path: string }[] },
  ]
  const tarball = path.join(folder, filename)
  const strays = files
    .map((file) => file.path)
    .filter((file) => /^(test|bench|scripts|\.ci)\/|\.ts$/.test(file) && !file.endsWith('.d.ts'))
  if (strays.length > 0) throw new Error(`the tarball holds what nobody needs: ${strays.join(', ')}`)
  if (!files.some((file) => file.path === 'dist/console/index.html')) throw new Error('the tarball holds no console')
  run('publint', ['run', tarball, '--strict'])
  run('attw', [tarball, '--profile', 'esm-only'])

  // What a stranger gets: install the tarball, import each entry point, run the binary.
  fs.writeFileSync(path.join(folder, 'package.json'), '{"private":true,"type":"module"}')
  run('npm', ['install', '--silent', '--no-audit', '--no-fund', tarball], folder)
  run(
    'node',
    ['--input-type=module', '-e', "await import('sallyport/proxy'); await import('sallyport/policies')"],
    folder,
  )
  // And compiles against it, also where declarations are checked and no optional package is there. The only other types are those of Node.
  for (const name of ['@types/node', 'undici-types'])
    fs.cpSync(path.join('node_modules', name), path.join(folder, 'node_modules', name), { recursive: true })
  fs.writeFileSync(
    path.join(folder, 'stranger.ts'),
    "import { createSandboxProvider } from 'sallyport'\nimport { createGateway } from 'sallyport/proxy'\n" +
      "import { parseEntry } from 'sallyport/policies'\nexport { createGateway, createSandboxProvider, parseEntry }\n",
  )
  const strict = ['--strict', '--noEmit', '--skipLibCheck', 'false', '--types', 'node', '--module', 'nodenext']
  run(
    path.resolve('node_modules/.bin/tsc'),
    [...strict, '--target', 'es2024', '--lib', 'esnext', 'stranger.ts'],
    folder,
  )
  // Without what they are for, which is optional, the adapters load all the same and say what is missing.
  for (const [adapter, call] of [
    ['langchain', 'sandboxTools'],
    ['langchain', 'deepagentsBackend'],
    ['openai-agents', 'sandboxTools'],
    ['openai-agents', 'sandboxClient'],
  ] as const) {
    const program = `const { ${call} } = await import('sallyport/adapters/${adapter}')
      try { await ${call}({}) } catch (error) { process.stdout.write(error.code) }`
    const code = run('node', ['--input-type=module', '-e', program], folder)
    if (code !== 'SALLYPORT_PACKAGE_MISSING')
      throw new Error(`${call} of ${adapter} says \`${code}\` without its package`)
  }
  run('node', ['--input-type=module', '-e', "(await import('sallyport/adapters/ai-sdk')).sandboxTools({})"], folder)
  const help = run(path.join(folder, 'node_modules/.bin/sallyport'), ['--help'], folder)
  if (!help.includes('serve')) throw new Error('the installed binary does not print its help')
  console.log(`package: ${files.length} files, types and entry points are right`)
} finally {
  fs.rmSync(folder, { recursive: true, force: true })
}

function run(command: string, args: readonly string[], cwd?: string): string {
  try {
    return execFileSync(command, args, {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(cwd !== undefined && { cwd }),
    })
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string }
    throw new Error(`${command} ${args[0] ?? ''} failed\n${stdout}${stderr}`, { cause: error })
  }
}
