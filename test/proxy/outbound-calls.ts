/** Finds every place in a source file that could open a connection to somewhere, or look a name up. Reads the syntax tree, so that comments and texts don't count. */
import ts from 'typescript'

/** Modules that connect, and what in them is harmless: types, servers, and reading addresses. Everything else in them is found. */
const HARMLESS: Readonly<Record<string, readonly string[]>> = {
  net: ['isIP', 'isIPv4', 'isIPv6', 'createServer', 'Server', 'BlockList', 'SocketAddress'],
  tls: [
    'createServer',
    'Server',
    'createSecureContext',
    'SecureContext',
    'TLSSocket',
    'rootCertificates',
    'getCACertificates',
    'checkServerIdentity',
  ],
  http: [
    'createServer',
    'Server',
    'IncomingMessage',
    'ServerResponse',
    'Agent',
    'STATUS_CODES',
    'METHODS',
    'validateHeaderName',
    'validateHeaderValue',
  ],
  https: ['createServer', 'Server', 'Agent'],
  http2: ['createServer', 'createSecureServer', 'constants'],
  dgram: [],
  dns: ['NOTFOUND', 'NODATA', 'TIMEOUT', 'CANCELLED', 'SERVFAIL'],
  'dns/promises': [],
  child_process: [],
  cluster: [],
}

/** Packages that are clients. A server package is none. */
const CLIENT_PACKAGES =
  /^(?:undici|ws|axios|got|node-fetch|https?-proxy-agent|agent-base|socks|socks-proxy-agent|playwright-core|dns-packet)(?:\/|$)/

const CLIENT_GLOBALS = new Set(['fetch', 'WebSocket', 'EventSource', 'XMLHttpRequest'])

const INSIDES = new Set(['createTcp', 'connect6'])

/** Each use, such as `net.connect` or `fetch`, as often as it occurs. */
export function findOutboundCalls(source: string): readonly string[] {
  const file = ts.createSourceFile('file.ts', source, ts.ScriptTarget.Latest, true)
  const found: string[] = []
  const modules = new Map<string, string>()
  const shadowed = new Set<string>()
  const sockets = /\bnew\s+[a-zA-Z]*\.?(?:TLS)?Socket\b/.test(source)
  file.statements.forEach(readImport)
  visit(file)
  return found.sort()

  function readImport(statement: ts.Statement): void {
    if (!ts.isImportDeclaration(statement) || !ts.isStringLiteral(statement.moduleSpecifier)) return
    const clause = statement.importClause
    const name = statement.moduleSpecifier.text
      .replace(/^node:|^(?:\.\.?\/)+node-(?=http\.ts$)/, '')
      .replace(/\.ts$/, '')
    if (clause === undefined || clause.phaseModifier === ts.SyntaxKind.TypeKeyword) return
    if (CLIENT_PACKAGES.test(name)) found.push(`import ${name}`)
    const bindings = clause.namedBindings
    if (!(name in HARMLESS)) {
      if (bindings !== undefined && ts.isNamedImports(bindings))
        for (const one of bindings.elements) shadowed.add(one.name.text)
      return
    }
    if (clause.name !== undefined) modules.set(clause.name.text, name)
    if (bindings === undefined) return
    if (ts.isNamespaceImport(bindings)) {
      modules.set(bindings.name.text, name)
      return
    }
    for (const one of bindings.elements) {
      const original = (one.propertyName ?? one.name).text
      if (original === 'default') modules.set(one.name.text, name)
      else if (!one.isTypeOnly && HARMLESS[name]?.includes(original) !== true) found.push(`${name}.${original}`)
    }
  }

  function visit(node: ts.Node): void {
    if (ts.isTypeNode(node)) return
    if (ts.isIdentifier(node)) readIdentifier(node)
    if (ts.isCallExpression(node)) readCall(node)
    ts.forEachChild(node, visit)
  }

  function readIdentifier(node: ts.Identifier): void {
    const { parent } = node
    const module = modules.get(node.text)
    if (
      module !== undefined &&
      !ts.isImportClause(parent) &&
      !ts.isNamespaceImport(parent) &&
      !ts.isImportSpecifier(parent)
    ) {
      if (ts.isPropertyAccessExpression(parent) && parent.expression === node) {
        if (HARMLESS[module]?.includes(parent.name.text) !== true) found.push(`${module}.${parent.name.text}`)
      } else if (!isName(node)) {
        // Handed on whole: what is done with it can't be seen.
        found.push(`${module}.*`)
      }
    }
    // Node's own insides, by whatever way they are reached; and what leads to them here.
    if (INSIDES.has(node.text) && !ts.isImportSpecifier(parent) && !ts.isFunctionDeclaration(parent))
      found.push(node.text)
    if (/^_?(?:linkedB|b)inding$/.test(node.text) && isOfProcess(node)) found.push(`process.${node.text}`)
    if (CLIENT_GLOBALS.has(node.text) && !shadowed.has(node.text) && !isName(node) && !isLocal(node))
      found.push(node.text)
  }

  function readCall(node: ts.CallExpression): void {
    const { expression } = node
    const first = node.arguments[0]
    const loads =
      expression.kind === ts.SyntaxKind.ImportKeyword || (ts.isIdentifier(expression) && expression.text === 'require')
    if (loads) {
      const name = first !== undefined && ts.isStringLiteralLike(first) ? first.text.replace(/^node:/, '') : undefined
      if (name === undefined || name in HARMLESS || CLIENT_PACKAGES.test(name)) found.push(`import(${name ?? '?'})`)
    }
    if (ts.isCallExpression(expression) && expression.expression.getText(file) === 'createRequire') {
      const name = first !== undefined && ts.isStringLiteralLike(first) ? first.text : '?'
      if (name !== 'yaml') found.push(`createRequire(${name})`)
    } else if (ts.isIdentifier(expression) && expression.text === 'createRequire' && !ts.isCallExpression(node.parent))
      found.push('createRequire')
    if (ts.isPropertyAccessExpression(expression)) {
      if (expression.name.text === 'getBuiltinModule') found.push('getBuiltinModule')
      // Where sockets are made by hand they can also be connected by hand.
      if (sockets && expression.name.text === 'connect' && !isModule(expression.expression)) found.push('.connect')
    }
  }

  function isModule(node: ts.Expression): boolean {
    return ts.isIdentifier(node) && modules.has(node.text)
  }

  /** Whether the global `process` has to do with it. */
  function isOfProcess(node: ts.Node): boolean {
    let statement = node
    while (!ts.isStatement(statement)) statement = statement.parent
    return /\bprocess\b/.test(statement.getText(file))
  }

  /** Whether the identifier names a member, a parameter or the like, rather than using what it stands for. */
  function isName(node: ts.Identifier): boolean {
    const { parent } = node
    if (ts.isPropertyAccessExpression(parent)) return parent.name === node && !isGlobalObject(parent.expression)
    if (ts.isShorthandPropertyAssignment(parent)) return false
    if (ts.isPropertyAssignment(parent) || ts.isBindingElement(parent))
      return parent.name === node || (ts.isBindingElement(parent) && parent.propertyName === node)
    return (
      (ts.isParameter(parent) ||
        ts.isVariableDeclaration(parent) ||
        ts.isPropertySignature(parent) ||
        ts.isPropertyDeclaration(parent) ||
        ts.isMethodDeclaration(parent)) &&
      parent.name === node
    )
  }

  function isGlobalObject(node: ts.Expression): boolean {
    return ts.isIdentifier(node) && (node.text === 'globalThis' || node.text === 'global')
  }

  /** Whether a function around it, or the file, has something of its own by this name. */
  function isLocal(node: ts.Identifier): boolean {
    for (let scope: ts.Node = node; !ts.isSourceFile(scope); scope = scope.parent) {
      if (ts.isFunctionLike(scope) && scope.parameters.some((one) => bindsName(one.name, node.text))) return true
      if (
        ts.isBlock(scope) &&
        scope.statements.some(
          (one) =>
            ts.isVariableStatement(one) &&
            one.declarationList.declarations.some((two) => bindsName(two.name, node.text)),
        )
      ) {
        return true
      }
    }
    return false
  }

  function bindsName(name: ts.BindingName, text: string): boolean {
    if (ts.isIdentifier(name)) return name.text === text
    return name.elements.some((one) => ts.isBindingElement(one) && bindsName(one.name, text))
  }
}
