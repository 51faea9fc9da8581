/** The direction of dependency: policies ← proxy ← provider. `test/architecture.test.ts` plants violations to prove that this is awake. */
const BUILTIN =
  '^(node:|assert|async_hooks|buffer|child_process|cluster|crypto|dgram|dns|events|fs|http|http2|https|net|os|path|perf_hooks|process|stream|timers|tls|tty|url|util|v8|vm|worker_threads|zlib)($|/)'

module.exports = {
  forbidden: [
    {
      name: 'policies-are-pure',
      comment:
        'A decision is a function of its arguments: no sockets, files, clock or randomness, and no other part of the product.',
      severity: 'error',
      from: { path: '^policies/' },
      to: { path: `^(proxy|provider|deploy|test|scripts|bench)/|${BUILTIN}` },
    },
    {
      name: 'policies-few-libraries',
      severity: 'error',
      from: { path: '^policies/' },
      to: {
        dependencyTypes: ['npm', 'npm-dev', 'npm-optional'],
        pathNot: 'node_modules/(zod|tr46|tldts|tldts-core)/',
      },
    },
    {
      name: 'proxy-knows-no-provider',
      severity: 'error',
      from: { path: '^proxy/' },
      to: { path: '^(provider|deploy|test|scripts|bench)/' },
    },
    {
      name: 'console-knows-types-alone',
      comment:
        'The console runs in a browser: of the gateway it takes the shapes of what the control API answers, and no code.',
      severity: 'error',
      from: { path: '^proxy/console/', pathNot: '/vite\\.config\\.ts$' },
      to: {
        path: `^(policies|proxy|provider|deploy|test|scripts|bench)/|${BUILTIN}`,
        pathNot: '^proxy/console/',
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'console-is-served-not-imported',
      severity: 'error',
      from: { path: '^(policies|proxy|provider)/', pathNot: '^proxy/console/' },
      to: { path: '^proxy/console/' },
    },
    {
      name: 'provider-by-the-front-door',
      severity: 'error',
      from: { path: '^provider/', pathNot: '^provider/cli/' },
      to: { path: '^proxy/', pathNot: '^proxy/index\\.ts$' },
    },
    {
      name: 'command-line-by-the-front-door',
      comment:
        'The one exception: there is one binary, so the command line of the provider is built on that of the gateway, and reads the audit log and values as that does.',
      severity: 'error',
      from: { path: '^provider/cli/' },
      to: {
        path: '^proxy/',
        pathNot:
          '^proxy/(index|cli/.+|audit/(match|read-lines|schema|segments)|config/(environment|values)|policy/machine-sets)\\.ts$',
      },
    },
    {
      name: 'deploy-is-imported-by-nothing',
      severity: 'error',
      from: { path: '^(policies|proxy|provider)/' },
      to: { path: '^deploy/' },
    },
    {
      name: 'no-circle',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'no-development-library-in-the-product',
      severity: 'error',
      // What the console is made of is bundled into it.
      from: { path: '^(policies|proxy|provider)/', pathNot: '^proxy/console/' },
      to: {
        dependencyTypes: ['npm-dev'],
        dependencyTypesNot: ['type-only'],
        // Optional peers: loaded by whoever needs them, and tested against.
        pathNot:
          'node_modules/(@anthropic-ai/sandbox-runtime|@azure/identity|@langchain/core|@modelcontextprotocol/sdk|@openai/agents|deepagents|dockerode|e2b)/',
      },
    },
    { name: 'resolvable', severity: 'error', from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'types', 'default'] },
  },
}
