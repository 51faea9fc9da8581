/** Where languages and tools fetch packages from. Reading only: what serves uploads is left closed where it has a name. */
import type { Preset } from './preset.ts'

/** One set for each registry. */
export const PACKAGE_REGISTRIES: readonly Preset[] = [
  {
    name: 'pypi',
    opens: 'the index and the files of PyPI (pip, uv, poetry)',
    // Uploading is a way to send data out.
    leavesClosed: 'uploads (upload.pypi.org), TestPyPI, project documentation (*.readthedocs.io)',
    entries: ['pypi.org', 'files.pythonhosted.org'],
  },
  {
    name: 'crates',
    opens: 'the sparse index and the crates of crates.io, and rustup',
    // crates.io itself is the site and the API that publishes; cargo needs only the index and the files.
    leavesClosed: 'the site and the publishing API (crates.io), docs.rs, the git index on GitHub',
    entries: ['index.crates.io', 'static.crates.io', 'static.rust-lang.org'],
  },
  {
    name: 'golang',
    opens: 'the module proxy, the checksum database and the toolchains of Go',
    // GOPROXY=direct would need every host that any module path names.
    leavesClosed: 'direct fetches from code hosts, pkg.go.dev, vanity import paths; *.googleapis.com',
    entries: ['proxy.golang.org', 'sum.golang.org', 'go.dev', 'dl.google.com'],
  },
]
