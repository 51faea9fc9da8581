/** Who looks at the console, and what they may do. */
import { signal } from '@preact/signals'
import type { CallerShown } from '../admin/routes/caller.ts'
import { ApiFault, ask, useToken } from './api.ts'
import { textOf } from './format.ts'

/** A scope of an admin token. */
export type Scope = CallerShown['scopes'][number]

/** Who is signed in; `undefined`: nobody. */
export const caller = signal<CallerShown | undefined>(undefined)

/** Why the last one is not signed in any more, or could not be. */
export const refusal = signal<string | undefined>(undefined)

/** @throws ApiFault when the token is not accepted */
export async function signIn(token: string): Promise<void> {
  const pasted = token.trim().replace(/^bearer\s+/i, '')
  // Anything else can not be put into a header, and is no token.
  if (!/^[A-Za-z0-9._~+/-]+=*$/.test(pasted)) throw new ApiFault(401, { message: 'this does not look like a token' })
  await enter(pasted)
}

/** Where a client certificate or the admin socket says who it is, no token is needed. */
export async function signInByCertificate(): Promise<void> {
  await enter(undefined).catch(() => undefined)
}

/** Forgets the token. */
export function signOut(why?: string): void {
  useToken(undefined, () => undefined)
  caller.value = undefined
  refusal.value = why
}

/** Why the caller may not do what needs one of these scopes; `undefined` when they may. */
export function whyNot(...needed: readonly Scope[]): string | undefined {
  const own = caller.value?.scopes ?? []
  if (own.includes('admin') || needed.some((scope) => own.includes(scope))) return undefined
  return `Needs the scope ${needed.join(' or ')}; yours: ${own.join(', ')}.`
}

async function enter(token: string | undefined): Promise<void> {
  useToken(token, () => undefined)
  try {
    caller.value = await ask<CallerShown>('GET', '/v1/caller')
  } catch (error) {
    useToken(undefined, () => undefined)
    throw error
  }
  refusal.value = undefined
  useToken(token, (fault) => signOut(`You were signed out: ${textOf(fault)}`))
}
