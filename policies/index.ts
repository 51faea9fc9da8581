/**
 * What may go out, and why. Pure: no sockets, files, clock or randomness.
 *
 * To read it: `decide.ts` is the decision, `layer.ts` what one policy says, `host-table.ts` how its list is asked. What they work on is read by `destination.ts`,
 * `host.ts` and `address.ts`; which addresses are never dialled is in `special-purpose.ts`, its blocks, and `embedded.ts`. A policy's text becomes a list by
 * `policy.ts` and `entry.ts`. Nothing of a decision is in `presets/` (lists), `cases.ts` (tests of policies) and `suggestion/` (policies made of a log).
 */
export { contains, IpAddress, parseAddress, parseRange, type AddressRange } from './address.ts'
export {
  decideAddresses,
  decideName,
  decideUnresolved,
  isPermit,
  stillAllowed,
  type Allow,
  type Deny,
  type DenyReason,
  type Layers,
  type NameAllow,
  type Permit,
  type Report,
} from './decide.ts'
export { runPolicyCases, type CaseDefaults, type CaseResult } from './cases.ts'
export { authorityText, destinationOf, hostText, parseAuthority, type Destination } from './destination.ts'
export { parseNat64Prefix, type EmbeddingForm } from './embedded.ts'
export { parseEntry, type Entry, type EntryContext, type EntrySets, type HostEntry, type PresetEntry } from './entry.ts'
export { explain, type Explanation, type LayerExplanation } from './explain.ts'
export { SallyportError, type ErrorCode } from './error.ts'
export { parseHostName, type HostName } from './host.ts'
export { jsonPieces, jsonSteps } from './json-steps.ts'
export type { Layer, LayerName, LayerReason } from './layer.ts'
export { faulty, parsed, quoted, type Checked, type Fault, type LocatedFault, type Parsed } from './parsed.ts'
export {
  checkPolicyShape,
  compileDeniedHosts,
  compilePolicy,
  compilePolicySteps,
  egressPolicySchema,
  layerPolicySchema,
  parseLayerPolicy,
  parseLayerPolicySteps,
  parsePolicy,
  parsePolicySteps,
  parseSets,
  type CompiledPolicy,
  type EgressPolicy,
  type EgressPolicyData,
  type StaticPolicy,
} from './policy.ts'
export type { PortRange } from './ports.ts'
export { PRESETS, type Preset } from './presets/index.ts'
export {
  judgeAddress,
  judgeEndpoint,
  parseNetworkRules,
  type AddressVerdict,
  type NetworkRules,
  type OwnListener,
} from './special-purpose.ts'
export { metadataIn } from './special-purpose-blocks.ts'
export { finish, type Steps } from './steps.ts'
export { doubt, DOUBT_KINDS, type Doubt } from './suggestion/doubts.ts'
export type { DoubtKind } from './suggestion/doubtful-names.ts'
export {
  matchedAs,
  suggestPolicy,
  type SeenDestination,
  type SuggestedEntry,
  type Suggestion,
  type SuggestOptions,
} from './suggestion/suggest-policy.ts'
