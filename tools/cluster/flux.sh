#!/usr/bin/env bash
# Builds the source controller and the kustomize controller of Flux once into the user's cache, and prints the folder: bin/ and manifests/.
# They have a folder of their own, named for what is in it, so that another pin of theirs does not build the rest of the cluster anew.
# What an interrupted build has finished is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
hash=$(cat flux.sh flux/go.mod flux/go.sum | sha256sum | cut -c1-12)
out=$cache/flux-$hash
if [[ -f $out/complete ]]; then
	echo "$out"
	exit
fi

mkdir -p "$out/bin" "$out/manifests"
exec 9>"$out/lock"
flock 9
if [[ -f $out/complete ]]; then # another one has built it meanwhile
	echo "$out"
	exit
fi
export GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0 GOTOOLCHAIN=${GOTOOLCHAIN:-auto}
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }

cd flux
say "building the controllers of Flux, once, into $out"
for name in kustomize-controller source-controller; do
	module=github.com/fluxcd/$name
	if [[ ! -x $out/bin/$name ]]; then
		say "building $name"
		nice go build -trimpath -ldflags "-s -w" -o "$out/bin/.$name" "$module" >&2
		mv "$out/bin/.$name" "$out/bin/$name"
	fi
	dir=$(go list -m -f '{{.Dir}}' "$module")
	install -m 0644 "$dir"/config/crd/bases/*.yaml "$out/manifests/"
done
touch "$out/complete"
say "done"
echo "$out"
