/** The gateway as a library: `sallyport/proxy`. What is exported here is what the provider and other programs may depend on. */
export {
  type BindAddress,
  type BoundListener,
  createGateway,
  type Gateway,
  type GatewayLogger,
  type GatewayOptions,
  type Listening,
} from './gateway.ts'
export type { BoundIdentity } from './bound-identity.ts'
export { clientVariables, type ClientSettings, type Variables } from './cli/client-environment.ts'
export { type Clock, systemClock } from './clock.ts'
export { ConfigError, loadConfig, type LoadOptions } from './config/load.ts'
export { parseConfig, type ParsedConfig, type ParseOptions } from './config/parse.ts'
export type { Config, ConfigInput } from './config/schema.ts'
export type { ListeningAddress } from './listeners.ts'
export { defaultRuntimeRoot } from './runtime-root.ts'
export { ALL_REASONS, CLOSE_REASONS, type CloseReason, type CredentialReason, type Reason } from './reasons.ts'
export { openKeys, type OwnKey, type OwnKeys } from './tokens/keys.ts'
export { mintToken, type MintedToken, type MintOptions } from './tokens/mint.ts'
export { readSigningKey, type SigningKey } from './tokens/signing-key.ts'
export { SallyportError, type ErrorCode } from '../policies/index.ts'
