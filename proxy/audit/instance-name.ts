/** What a gateway is called in its audit log when nobody gave it a name. */

/** The host name as the audit log takes names, at most `longest` characters of it. */
export function instanceName(hostName: string, longest = 63): string {
  const name = hostName
    .replace(/[^A-Za-z0-9._-]/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, longest)
    .replace(/[^A-Za-z0-9]+$/, '')
  return name === '' ? 'gateway' : name
}

/** The log of one worker of a gateway, beside the gateway's own. */
export function workerInstance(gateway: string, number: number): string {
  return `${gateway}-${number}`
}

/** The logs of a gateway and of its workers: who does too much does it in all of them together. */
export function instancesOf(gateway: string, workers: number): readonly string[] {
  return [gateway, ...Array.from({ length: workers }, (_none, index) => workerInstance(gateway, index + 1))]
}
