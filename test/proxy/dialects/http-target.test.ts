/** Targets in absolute form, and the oddities of them. */
import { describe, expect, test } from 'vitest'
import { parseAuthority } from '../../../policies/index.ts'
import { parseAbsoluteTarget } from '../../../proxy/dialects/http-target.ts'

const get = (text: string) => parseAbsoluteTarget('GET', text)

describe('a target that is served', () => {
  test.each([
    ['http://a.example/x?q=1', 'a.example:80', '/x?q=1'],
    ['http://a.example', 'a.example:80', '/'],
    ['http://a.example/', 'a.example:80', '/'],
    ['http://a.example?q', 'a.example:80', '/?q'],
    ['http://a.example:8080/x', 'a.example:8080', '/x'],
    ['http://a.example:80', 'a.example:80', '/'],
    ['HTTP://A.example/', 'A.example:80', '/'],
    ['hTtP://a.example/', 'a.example:80', '/'],
    ['http://[2001:db8::1]/', '[2001:db8::1]:80', '/'],
    ['http://[2001:db8::1]:8080/', '[2001:db8::1]:8080', '/'],
    ['http://192.0.2.1/', '192.0.2.1:80', '/'],
    ['http://a.example//b//../c', 'a.example:80', '//b//../c'],
    ['http://a.example/%2e%2e/%00', 'a.example:80', '/%2e%2e/%00'],
    ['http://a.example/@user:pw', 'a.example:80', '/@user:pw'],
    ['http://a.example/http://b.example/', 'a.example:80', '/http://b.example/'],
    ['http://a.example/?u=http://b.example#'.slice(0, -1), 'a.example:80', '/?u=http://b.example'],
    ['http://a.example/a|b{c}', 'a.example:80', '/a|b{c}'],
  ])('%s', (text, target, path) => {
    expect(get(text)).toEqual({ ok: true, target, path })
  })

  test('OPTIONS without a path asks the origin for *, with one for that', () => {
    expect(parseAbsoluteTarget('OPTIONS', 'http://a.example')).toMatchObject({ path: '*' })
    expect(parseAbsoluteTarget('OPTIONS', 'http://a.example/')).toMatchObject({ path: '/' })
    expect(parseAbsoluteTarget('OPTIONS', 'http://a.example?q')).toMatchObject({ path: '/?q' })
  })
})

describe('a target that is refused', () => {
  test.each([
    ['/v1/reload'],
    [''],
    ['*'],
    ['a.example'],
    ['a.example:80'],
    ['a.example:443'],
    ['http:a.example'],
    ['http:/a.example/'],
    ['http:///x'],
    ['http://'],
    ['http://?q'],
    ['http://user@a.example/'],
    ['http://user:pw@a.example/'],
    ['http://a.example@b.example/'],
    ['http://@a.example/'],
    ['http://a.example/#f'],
    ['http://a.example#f'],
    ['http://a.example/x#'],
    ['http://a.example/\xe9'],
    ['http://a.example/a b'],
    ['http://a.example/"'],
    ['//a.example/'],
    [' http://a.example/'],
    ['http ://a.example/'],
  ])('%j is malformed', (text) => {
    expect(get(text)).toMatchObject({ ok: false, reason: 'target_malformed' })
  })

  // These are for the one parser of authorities to refuse, which sees them as they came.
  test.each([
    ['http://a.example:/', 'a.example:'],
    ['http://:80/', ':80'],
    ['http://a.example:080/', 'a.example:080'],
    ['http://a.example:0/', 'a.example:0'],
    ['http://a.example:80:80/', 'a.example:80:80'],
    ['http://2001:db8::1/', '2001:db8::1'],
    ['http://[2001:db8::1/', '[2001:db8::1'],
    ['http://[a.example]/', '[a.example]:80'],
    ['http://a%2eexample/', 'a%2eexample:80'],
    ['http://a.example\\b.example/', 'a.example\\b.example:80'],
    ['http://127.1/', '127.1:80'],
    ['http://[::1%25eth0]/', '[::1%25eth0]:80'],
    ['http://a..example/', 'a..example:80'],
    ['http://a,b/', 'a,b:80'],
  ])('%s is malformed as `%s`', (text, target) => {
    expect(get(text)).toMatchObject({ ok: true, target })
    expect(parseAuthority(target).ok).toBe(false)
  })

  test.each([
    'https://a.example/',
    'ftp://a.example/f',
    'wss://a.example/',
    'ws://a.example/',
    'gopher://a.example/',
    'file:///etc/passwd',
  ])('%s has a scheme that is not served', (text) => {
    expect(get(text)).toMatchObject({ ok: false, reason: 'scheme_not_supported' })
  })

  test('OPTIONS of the gateway itself is not served', () => {
    expect(parseAbsoluteTarget('OPTIONS', '*')).toMatchObject({ ok: false, reason: 'method_not_allowed' })
  })

  test.each([
    ['https://sbx:s3cr3t@a.example:443/p?key=s3cr3t', 'https://***@a.example:443'],
    ['http://sbx:s3cr3t@a.example/', 'http://***@a.example'],
    ['/v1/reload?token=s3cr3t', '/v1/reload'],
    ['s3cr3t@a.example:80', '***@a.example:80'],
  ])('%s is shown without what may be secret', (text, requested) => {
    expect(get(text)).toMatchObject({ ok: false, requested })
  })
})
