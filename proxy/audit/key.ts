/** The Ed25519 key of the checkpoints: reading it from JWK or PEM, and naming it. Never part of a token. */
import type { KeyObject } from 'node:crypto'

/** What signs checkpoints. */
export interface SigningKey {
  /** RFC 7638 thumbprint of the public key; `signer` in a checkpoint. */
  readonly id: string
  readonly privateKey: KeyObject
  readonly publicKey: KeyObject
}

/** What checks checkpoints. */
export interface VerifyKey {
  /** RFC 7638 thumbprint. */
  readonly id: string
  readonly publicKey: KeyObject
}
