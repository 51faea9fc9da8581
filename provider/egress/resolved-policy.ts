/** Asks a resolver before a sandbox starts, so that one that fails is a fault of whoever asked for the sandbox, and not a silent denial later. */
import { type EgressPolicy, SallyportError } from '../../policies/index.ts'

/** The policy as it is; a resolver has been asked, and its answer is what the first look at the result gives. @throws what the resolver throws */
export async function askedPolicy(policy: EgressPolicy): Promise<EgressPolicy> {
  if (policy.kind !== 'resolver') return policy
  const { resolve } = policy
  let first: readonly string[] | undefined = await answerOf(resolve)
  return {
    kind: 'resolver',
    resolve: () => {
      const answer = first === undefined ? answerOf(resolve) : Promise.resolve(first)
      first = undefined
      return answer
    },
  }
}

/** @throws what the resolver throws; SallyportError `SALLYPORT_POLICY_INVALID` for what is no list of texts */
export async function answerOf(resolve: () => Promise<readonly string[]>): Promise<readonly string[]> {
  const answer: unknown = await resolve()
  if (Array.isArray(answer) && answer.every((entry) => typeof entry === 'string')) return answer
  throw new SallyportError('SALLYPORT_POLICY_INVALID', 'the resolver of an egress policy gave no list of entries')
}
