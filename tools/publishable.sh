#!/usr/bin/env bash
# Fails when the module of the protocol buffers could not be published, or would not be of use to those who depend on it: it takes what
# `buf push` would upload into a folder of its own, without this workspace, uses it there, and pushes it to a registry on this machine.
# No other registry is asked.
# BUF, PROTOC_GEN_GO and PROTOC_GEN_GO_GRPC are the programs.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "publishable: $*" >&2
  exit 1
}

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

name=$("$BUF" config ls-modules --format name)
[[ $name =~ ^[a-z0-9.-]+/[a-z0-9-]+/[a-z0-9-]+$ ]] || fail "buf.yaml: found the name \"$name\" of its module, expected REGISTRY/OWNER/NAME of one module"

# What is uploaded: the files of the module, its README and its license.
"$BUF" export . --all --exclude-imports -o "$out/module"
for file in README.md LICENSE; do
  [[ -s $out/module/$file ]] || fail "found no $file in the module, expected one"
done
diff -q proto/README.md "$out/module/README.md" >/dev/null || fail "the module's README.md is not proto/README.md"
expected=$(cd proto && git ls-files -co --exclude-standard '*.proto' | LC_ALL=C sort)
found=$(cd "$out/module" && find . -name '*.proto' | sed 's|^\./||' | LC_ALL=C sort)
[[ $found == "$expected" ]] || fail "found the files"$'\n'"$found"$'\n'"expected"$'\n'"$expected"

# A dependency that is neither in the module nor in buf.lock would be refused.
printf 'version: v2\nmodules:\n  - path: .\n    name: %s\n' "$name" >"$out/module/buf.yaml"
(cd "$out/module" && "$BUF" build -o /dev/null && "$BUF" lint --config '{"version":"v2","lint":{"use":["MINIMAL"]}}') ||
  fail "the module does not build by itself"

# Those who depend on it generate what is in this repository.
mkdir "$out/user"
sed 's|out: proto|out: .|' proto/buf.gen.yaml >"$out/user/buf.gen.yaml"
(cd "$out/user" && PATH="$(dirname "$PROTOC_GEN_GO"):$(dirname "$PROTOC_GEN_GO_GRPC"):$PATH" "$BUF" generate "$out/module")
(cd "$out/user" && find . -name '*.pb.go' | LC_ALL=C sort) | while read -r file; do
  diff -q "$out/user/$file" "proto/$file" >/dev/null || fail "found $file that differs from proto/$file, expected the same"
done
count=$(find "$out/user" -name '*.pb.go' | wc -l)
[[ $count -eq $(find proto -name '*.pb.go' | wc -l) ]] || fail "found $count generated files, expected those in proto"

# What buf uploads is what is here. The registry is a program of ours, which buf reaches without TLS.
go run ./tools/docgen/publishable "$BUF" "$out/module" || fail "buf push does not upload the module"
