/** What the documentation of the deployments names is there, and every deployment says where its trust ends. */
import fs from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'

const DEPLOY = path.resolve(import.meta.dirname, '../../deploy')
const ROOT = path.dirname(DEPLOY)

test.each(['image', 'compose', 'systemd', 'kubernetes', 'observability', 'microvm'])(
  '%s has a page with its trust boundary',
  (name) => {
    expect(fs.readFileSync(path.join(DEPLOY, name, 'README.md'), 'utf8')).toMatch(/^## Trust boundary/m)
  },
)

test.each([
  'docs/deploy.md',
  ...['image', 'compose', 'systemd', 'kubernetes', 'observability', 'microvm'].map(
    (name) => `deploy/${name}/README.md`,
  ),
])('what %s links to exists', (page) => {
  const text = fs.readFileSync(path.join(ROOT, page), 'utf8')
  const links = [...text.matchAll(/\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)/g)].flatMap(([, link]) => link ?? [])
  expect(links.length).toBeGreaterThan(0)
  for (const link of links)
    expect([link, fs.existsSync(path.join(ROOT, path.dirname(page), link))]).toEqual([link, true])
})
