/** What Azure Resource Manager's codes mean, and what to do about each. Codes that Azure does not list in its specification are from its documents. */
import type { PlatformFault } from '../platform/platform-error.ts'
import type { RefusalMeaning } from '../platform/refusal.ts'

/** What a refusal, or the error of an operation that failed, means. Undefined: what its status says. */
export function explainArm({
  code,
  message,
}: {
  readonly code: string
  readonly message: string
}): RefusalMeaning | undefined {
  const known = MEANINGS.find(({ codes, says }) => codes.includes(code) || says?.test(message) === true)
  return known === undefined ? undefined : { fault: known.fault, advice: known.advice }
}

const MEANINGS: readonly {
  readonly codes: readonly string[]
  readonly says?: RegExp
  readonly fault: PlatformFault
  readonly advice: string
}[] = [
  {
    codes: [
      'InvalidAuthenticationToken',
      'ExpiredAuthenticationToken',
      'AuthenticationFailed',
      'InvalidAuthenticationTokenTenant',
    ],
    fault: 'credentials_refused',
    advice: 'the token is not one for this subscription: check whose identity it is, and of which tenant',
  },
  {
    codes: ['AuthorizationFailed', 'LinkedAuthorizationFailed'],
    fault: 'credentials_refused',
    advice:
      'give the identity the role of deploy/azure on the resource group: read, write and delete of Microsoft.ContainerInstance/containerGroups, read and use of the pool, its profile and its subnet',
  },
  {
    codes: ['MissingSubscriptionRegistration'],
    fault: 'not_found',
    advice:
      'register the providers: `az provider register --namespace Microsoft.ContainerInstance` and `Microsoft.StandbyPool`',
  },
  {
    codes: [
      'LocationNotAvailableForResourceType',
      'NoRegisteredProviderFound',
      'InvalidLocation',
      'ServiceUnavailableInRegion',
    ],
    fault: 'region_unavailable',
    advice: 'choose a region that has container groups and standby pools, and make the pool there',
  },
  {
    codes: [
      'SubscriptionNotFound',
      'InvalidSubscriptionId',
      'ResourceGroupNotFound',
      'ResourceNotFound',
      'ParentResourceNotFound',
      'ContainerGroupProfileNotFound',
      'StandbyPoolNotFound',
    ],
    fault: 'not_found',
    advice: 'check the names, or make it with deploy/azure',
  },
  {
    codes: ['ContainerGroupQuotaReached', 'QuotaExceeded', 'OperationNotAllowed'],
    says: /\bquota\b/i,
    fault: 'quota_exhausted',
    advice: 'end sandboxes that are not needed, or ask Azure for a higher quota in this region',
  },
  {
    codes: ['StandbyPoolReuseFailed', 'ContainerGroupReuseFailed', 'StandbyPoolEmpty'],
    says: /standby ?pool.*(empty|no (available|ready)|reuse)|reuse.*standby ?pool/i,
    fault: 'capacity_exhausted',
    advice:
      'the pool has nothing ready: try later, raise its maxReadyCapacity, or let claims go on cold (failContainerGroupCreateOnReuseFailure: false)',
  },
  {
    codes: ['InsufficientCapacity', 'ServiceUnavailable', 'SkuNotAvailable'],
    fault: 'capacity_exhausted',
    advice: 'the region has no room at the moment: try later, or another region',
  },
  {
    codes: ['InaccessibleImage', 'ImagePullFailed', 'RegistryErrorResponse', 'InvalidImage'],
    fault: 'image_unusable',
    advice: 'check the name of the image and who may pull it',
  },
  {
    codes: ['ContainerGroupTransitioning', 'Conflict', 'RequestConflict', 'AnotherOperationInProgress'],
    fault: 'name_taken',
    advice: 'something else has the name, or changes it at this moment',
  },
]
