// Builds ../dist and writes down which source it was made of. ../stamp_test.go has the same list and the same hash.
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { build } from 'vite'

const stamped = ['index.html', 'package-lock.json', 'package.json', 'public', 'src', 'tsconfig.json', 'vite.config.ts']

function files(path) {
  return statSync(path).isDirectory() ? readdirSync(path).flatMap((name) => files(join(path, name))) : [path]
}

// The order of Go's strings: by bytes.
const byBytes = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))
const hash = (text) => createHash('sha256').update(text).digest('hex')

await build({ logLevel: 'warn' })
const lines = stamped.flatMap(files).sort(byBytes).map((name) => `${name} ${hash(readFileSync(name))}\n`)
writeFileSync('../dist/stamp.txt', hash(lines.join('')) + '\n')
