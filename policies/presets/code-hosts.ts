/** Where code is hosted. */
import type { Preset } from './preset.ts'

/** One set for each service. */
export const CODE_HOSTS: readonly Preset[] = [
  {
    name: 'github',
    opens: 'clone, push, releases, raw files, archives and the API of GitHub over https',
    // Anybody can publish a page, a gist or a site: what is fetched from there, and sent there, is a stranger's.
    // Actions' logs and artifacts come from storage accounts that have no fixed names.
    leavesClosed: 'gists, GitHub Pages (*.github.io), the container registry, Actions artifacts, Copilot, ssh',
    entries: [
      'github.com',
      'api.github.com',
      'codeload.github.com',
      'raw.githubusercontent.com',
      'objects.githubusercontent.com',
      'release-assets.githubusercontent.com',
      'media.githubusercontent.com',
      'github-cloud.githubusercontent.com',
      'github-cloud.s3.amazonaws.com',
    ],
  },
  {
    name: 'gitlab',
    opens: 'clone, push, archives and the API of gitlab.com over https',
    // Pages are anybody's; the container registry redirects to storage shared with strangers.
    leavesClosed: 'GitLab Pages (*.gitlab.io), the container registry, self-managed instances, ssh',
    entries: ['gitlab.com', 'assets.gitlab-static.net'],
  },
  {
    name: 'bitbucket',
    opens: 'clone, push and the API of bitbucket.org over https',
    // Sites are anybody's; downloads are served from a bucket that is reached by name below amazonaws.com.
    leavesClosed: 'Bitbucket sites (*.bitbucket.io), Jira and the rest of Atlassian, ssh',
    entries: ['bitbucket.org', 'api.bitbucket.org'],
  },
]
