/** Why a file could not be read or written, in words for whoever named it. */

const WORDS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EISDIR: 'it is a folder',
  ENOTAFILE: 'it is no file',
  ENOTDIR: 'no such folder',
  EEXIST: 'something else has that name',
  ENOTSUP: 'no folder can be made there',
  EROFS: 'the file system is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EFBIG: 'it is too large',
  EMFILE: 'too many open files',
  ENFILE: 'too many open files',
  ELOOP: 'links lead in a circle',
  ENAMETOOLONG: 'the name is too long',
  ERR_OSSL_X509_KEY_VALUES_MISMATCH: 'the key is not that of the certificate',
  ERR_OSSL_PEM_NO_START_LINE: 'there is no PEM block of that kind in it',
  ERR_OSSL_PEM_BAD_END_LINE: 'the PEM block is cut off',
  ERR_OSSL_PEM_BAD_BASE64_DECODE: 'the PEM block is damaged',
  ERR_OSSL_BAD_DECRYPT: 'the key is encrypted',
  ERR_OSSL_CRYPTO_INTERRUPTED_OR_CANCELLED: 'the key is encrypted',
  ERR_OSSL_UNSUPPORTED: 'the key or certificate is of a kind that is not understood, or damaged',
  ERR_OSSL_SSL_EE_KEY_TOO_SMALL: 'the key is too small',
}

/** Such as `no such file`, or why TLS does not take a certificate; the code of the system where there is no better word. Never the text of the error, which may hold more. */
export function whyUnreadable(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault'
  return WORDS[code] ?? code
}
