/** Examples of the documentation are programs: what the compiler says about them, with the options of this repository. */
import path from 'node:path'
import ts from 'typescript'

const ROOT = path.join(import.meta.dirname, '../..')

/** The faults in `files` themselves; they are whole paths. */
export function typeFaults(files: readonly string[]): readonly string[] {
  const { config } = ts.readConfigFile(path.join(ROOT, 'tsconfig.json'), (file) => ts.sys.readFile(file)) as {
    config: { compilerOptions: object }
  }
  const { options } = ts.convertCompilerOptionsFromJson(
    {
      ...config.compilerOptions,
      typeRoots: [path.join(ROOT, 'node_modules/@types')],
      noPropertyAccessFromIndexSignature: false,
      rewriteRelativeImportExtensions: false,
    },
    ROOT,
  )
  const program = ts.createProgram(files, options)
  return files
    .flatMap((file) => {
      const source = program.getSourceFile(file)
      return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)]
    })
    .map(
      ({ messageText, file }) =>
        `${path.basename(file?.fileName ?? '')}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`,
    )
}
