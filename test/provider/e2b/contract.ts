/** E2B's contracts, which are not part of this repository: its API, and envd's services in each machine. */
import fs from 'node:fs'
import path from 'node:path'
import { type AddedPaths, type Exchange, readSwagger } from '../swagger.ts'
import { type ProtoContract, readProto } from './proto.ts'

const FOLDER = path.join(import.meta.dirname, '../../../../shared/contracts/e2b')
const at = (name: string): string => path.join(FOLDER, name)

/** Printed where they are missing. */
export const NO_CONTRACTS = fs.existsSync(at('openapi.sdk.yml')) ? undefined : `E2B's contracts are not at ${FOLDER}: requests and replies are not held to them` // prettier-ignore

/** Everything that a request or a reply is held to; nothing where the contracts are missing. */
export interface E2bContract {
  readonly api: (exchange: Exchange) => readonly string[]
  readonly envd: (exchange: Exchange) => readonly string[]
  readonly services: Readonly<Record<string, ProtoContract>>
}

const error = { content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } } }
const created = {
  content: {
    'application/json': {
      schema: {
        type: 'object',
        required: ['sandboxID', 'templateID', 'clientID', 'envdVersion'],
        properties: Object.fromEntries(
          ['sandboxID', 'templateID', 'clientID', 'envdVersion', 'envdAccessToken', 'trafficAccessToken', 'alias', 'domain'].map((name) => [name, { type: 'string' }]), // prettier-ignore
        ),
      },
    },
  },
}
const refusals = Object.fromEntries(['400', '401', '403', '404', '429', '500', '503'].map((status) => [status, error]))

/** What the platform has and its description has not: the second version of making a machine, and of reaching one. */
const ADDED = {
  '/v2/sandboxes': {
    post: {
      requestBody: {
        required: true,
        content: {
          'application/json': {
            schema: {
              type: 'object',
              required: ['templateID'],
              properties: {
                templateID: { type: 'string' },
                timeout: { type: 'integer', minimum: 0 },
                metadata: { $ref: '#/components/schemas/SandboxMetadata' },
                envVars: { $ref: '#/components/schemas/EnvVars' },
                allow_internet_access: { type: 'boolean' },
                autoPause: { type: 'boolean' },
                network: { $ref: '#/components/schemas/SandboxNetworkConfig' },
              },
            },
          },
        },
      },
      responses: { ...refusals, 201: created },
    },
  },
  '/v2/sandboxes/{sandboxID}/connect': {
    post: {
      requestBody: {
        required: true,
        content: { 'application/json': { schema: { type: 'object', properties: { timeout: { type: 'integer', minimum: 0 } } } } }, // prettier-ignore
      },
      responses: { ...refusals, 200: created, 201: created },
    },
  },
} satisfies AddedPaths

const nothing = (): readonly string[] => []

/** Reads them. */
export function readContract(): E2bContract {
  if (NO_CONTRACTS !== undefined) return { api: nothing, envd: nothing, services: {} }
  return {
    api: readSwagger(at('openapi.sdk.yml'), undefined, ADDED),
    envd: readSwagger(at('envd.yaml')),
    services: {
      'process.Process': readProto(at('process.proto'), 'process.Process'),
      'filesystem.Filesystem': readProto(at('filesystem.proto'), 'filesystem.Filesystem'),
    },
  }
}
