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
  {
    name: 'maven',
    opens: 'Maven Central',
    // Other repositories are separate services; a build that needs one names it.
    leavesClosed:
      'publishing (central.sonatype.com), snapshots, the search site, Gradle, Google and JitPack repositories',
    entries: ['repo.maven.apache.org', 'repo1.maven.org'],
  },
  {
    name: 'gradle',
    opens: 'Gradle itself and its plugin portal; add @maven for libraries',
    // Distributions of old versions redirect to releases on GitHub: that is another set to allow.
    leavesClosed: 'build scans (scans.gradle.com: they carry build data out), distributions that live on GitHub',
    entries: ['services.gradle.org', 'downloads.gradle.org', 'plugins.gradle.org', 'plugins-artifacts.gradle.org'],
  },
  {
    name: 'docker',
    opens: 'pulls from Docker Hub, anonymous or with a login',
    // The registry serves pulls and pushes under one name: a push needs credentials, not another host. Of the shared
    // object storage only Docker's own bucket is named.
    leavesClosed: 'the site and its API (hub.docker.com), Scout, build cloud, telemetry, *.r2.cloudflarestorage.com',
    entries: [
      'registry-1.docker.io',
      'auth.docker.io',
      'production.cloudflare.docker.com',
      'production.cloudfront.docker.com',
      'docker-images-prod.6aa30f8b08e16409b46e0173d6de2f56.r2.cloudflarestorage.com',
    ],
  },
  {
    name: 'ghcr',
    opens: 'pulls from the GitHub container registry',
    leavesClosed: 'the rest of GitHub, *.githubusercontent.com',
    entries: ['ghcr.io', 'pkg-containers.githubusercontent.com'],
  },
  {
    name: 'rubygems',
    opens: 'the index and the gems of RubyGems (gem, bundler)',
    // Gems are served and pushed under one name: a push needs an API key, not another host.
    leavesClosed: 'documentation (*.rubydoc.info), git sources',
    entries: ['rubygems.org', 'index.rubygems.org'],
  },
  {
    name: 'nuget',
    opens: 'the feed of nuget.org',
    leavesClosed: 'publishing (www.nuget.org), symbols, Azure Artifacts feeds',
    entries: ['api.nuget.org'],
  },
  {
    name: 'packagist',
    opens: 'the index of Packagist and Composer itself; add @github for most archives',
    leavesClosed: 'the site and its API (packagist.org), private Packagist, archives on code hosts',
    entries: ['repo.packagist.org', 'getcomposer.org'],
  },
  {
    name: 'hex',
    opens: 'the packages of Hex (mix, rebar3) and prebuilt runtimes',
    leavesClosed: 'the site and the publishing API (hex.pm), hexdocs.pm',
    entries: ['repo.hex.pm', 'builds.hex.pm'],
  },
  {
    name: 'conda',
    opens: 'the default channels and anaconda.org channels such as conda-forge',
    // Anybody can publish a channel below conda.anaconda.org; packages there are strangers' like those of any registry.
    leavesClosed: 'uploads and the API (api.anaconda.org), notebooks and sites on anaconda.cloud',
    entries: ['repo.anaconda.com', 'conda.anaconda.org'],
  },
]
