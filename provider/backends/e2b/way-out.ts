/** How commands of a machine get to the gateway: with a token that each is given, or by the platform, with a handle that none of them sees. */

/** One of the two, with what it takes. */
export type WayOut =
  | {
      readonly kind: 'gateway-address'
      /** None where another process has the way out. */
      readonly token: () => Promise<string | undefined>
    }
  | {
      readonly kind: 'socks5-proxy'
      /** Why the gateway decided as it did when the machine asked for a host; undefined where nobody can say. */
      readonly decisionOn?: ((host: string) => Promise<string | undefined>) | undefined
    }
