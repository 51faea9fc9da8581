/** Certificates made for this run: a CA and leaves for the names that tests use. */
import forge from 'node-forge'

export interface Pem {
  readonly cert: string
  readonly key: string
}

export interface Authority extends Pem {
  issue(
    commonName: string,
    options?: { readonly names?: readonly string[]; readonly addresses?: readonly string[]; readonly client?: boolean },
  ): Pem
}

let serial = Date.now()

/** A CA with a 2048-bit RSA key; about 100 ms. */
export function createAuthority(commonName = 'Sallyport test CA'): Authority {
  const keys = forge.pki.rsa.generateKeyPair(2048)
  const subject = [{ name: 'commonName', value: commonName }]
  const root = build(subject, subject, keys.publicKey, [
    { name: 'basicConstraints', cA: true, critical: true },
    { name: 'keyUsage', keyCertSign: true, cRLSign: true, critical: true },
  ])
  root.sign(keys.privateKey, forge.md.sha256.create())
  return {
    cert: forge.pki.certificateToPem(root),
    key: forge.pki.privateKeyToPem(keys.privateKey),
    issue: (leafName, options = {}) => {
      const leafKeys = forge.pki.rsa.generateKeyPair(2048)
      const altNames = [
        ...(options.names ?? [leafName]).map((value) => ({ type: 2, value })),
        ...(options.addresses ?? []).map((ip) => ({ type: 7, ip })),
      ]
      const leaf = build([{ name: 'commonName', value: leafName }], subject, leafKeys.publicKey, [
        { name: 'basicConstraints', cA: false },
        { name: 'keyUsage', digitalSignature: true, keyEncipherment: true },
        { name: 'extKeyUsage', serverAuth: !options.client, clientAuth: options.client === true },
        { name: 'subjectAltName', altNames },
      ])
      leaf.sign(keys.privateKey, forge.md.sha256.create())
      return { cert: forge.pki.certificateToPem(leaf), key: forge.pki.privateKeyToPem(leafKeys.privateKey) }
    },
  }
}

function build(
  subject: forge.pki.CertificateField[],
  issuer: forge.pki.CertificateField[],
  publicKey: forge.pki.PublicKey,
  extensions: object[],
): forge.pki.Certificate {
  const cert = forge.pki.createCertificate()
  cert.publicKey = publicKey
  cert.serialNumber = `01${(serial++).toString(16)}`
  cert.validity.notBefore = new Date(Date.now() - 3_600_000)
  cert.validity.notAfter = new Date(Date.now() + 86_400_000)
  cert.setSubject(subject)
  cert.setIssuer(issuer)
  cert.setExtensions(extensions)
  return cert
}
