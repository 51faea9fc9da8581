/** Tokens for Azure Resource Manager by the identities that the package `@azure/identity` knows; it is loaded when the first one is asked for. */
import type { AccessToken, TokenCredential } from '@azure/identity'
import { PlatformError } from '../platform/platform-error.ts'

/** Whose token. */
export type AzureCredential =
  /** `DefaultAzureCredential`: environment, workload identity, managed identity, then the developer's own tools. */
  | { readonly kind: 'default'; readonly clientId?: string }
  /** Of the machine, app or function that this process runs on; `clientId` for one that the user assigned. */
  | { readonly kind: 'managed-identity'; readonly clientId?: string }
  /** A federated token in a file; what is left out is taken from the environment, where Kubernetes puts it. */
  | {
      readonly kind: 'workload-identity'
      readonly tenantId?: string
      readonly clientId?: string
      readonly tokenFilePath?: string
      /** Of a private cloud; that of Azure by default. */
      readonly authorityHost?: string
    }

/** `https://management.azure.com/.default` by default. */
export interface ArmTokenOptions {
  readonly scope?: string
}

const SCOPE = 'https://management.azure.com/.default'
const TIMEOUT_MS = 30_000
const MAX_TOKEN_LENGTH = 32_768

/**
 * For `getArmToken`. Asks nobody yet. The package keeps each token and renews it in time.
 * @throws (the function) PlatformError `package_missing`; `credentials_refused` with what the package says
 */
export function createArmTokenSource(
  credential: AzureCredential = { kind: 'default' },
  { scope = SCOPE }: ArmTokenOptions = {},
): () => Promise<string> {
  let making: Promise<TokenCredential> | undefined
  return async () => {
    making ??= makeCredential(credential).catch((error: unknown) => {
      making = undefined
      throw error
    })
    const got = await (await making).getToken(scope, { abortSignal: AbortSignal.timeout(TIMEOUT_MS) })
    return tokenOf(got)
  }
}

async function makeCredential(credential: AzureCredential): Promise<TokenCredential> {
  const { DefaultAzureCredential, ManagedIdentityCredential, WorkloadIdentityCredential } = await loadIdentities()
  switch (credential.kind) {
    case 'default':
      return new DefaultAzureCredential(
        credential.clientId === undefined
          ? {}
          : {
              managedIdentityClientId: credential.clientId,
              workloadIdentityClientId: credential.clientId,
            },
      )
    case 'managed-identity':
      return new ManagedIdentityCredential(credential.clientId === undefined ? {} : { clientId: credential.clientId })
    case 'workload-identity': {
      const { kind: _kind, authorityHost, ...identity } = credential
      // Whoever names a private authority must not be told to ask Azure's own about it.
      return new WorkloadIdentityCredential({
        ...identity,
        ...(authorityHost !== undefined && { authorityHost, disableInstanceDiscovery: true }),
      })
    }
    default:
      throw new TypeError('`credential.kind` must be `default`, `managed-identity` or `workload-identity`')
  }
}

async function loadIdentities(): Promise<typeof import('@azure/identity')> {
  try {
    return await import('@azure/identity')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new PlatformError('package_missing', 'Azure’s identities need a package that is not installed: `npm install @azure/identity`, or give `getArmToken`') // prettier-ignore
  }
}

/** Types promise one; a stub or a credential of another version may not. */
function tokenOf(got: AccessToken | null): string {
  const token: unknown = got?.token
  if (typeof token === 'string' && token !== '' && token.length <= MAX_TOKEN_LENGTH) return token
  throw new PlatformError('credentials_refused', 'the identity gave no token for Azure Resource Manager')
}
