#!/usr/bin/env bash
# Builds the workflow controller and the server of Argo Workflows once into the user's cache, and prints the folder: bin/ and manifests/.
# They have a folder of their own, named for what is in it, so that another pin of theirs does not build the rest of the cluster anew.
# A cold build takes about 12 minutes on two busy cores; what an interrupted one has finished is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

module=github.com/argoproj/argo-workflows/v3
version=v3.7.4
kwok=sigs.k8s.io/kwok@$(sed -n 's/^kwok_version=//p' build.sh)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
hash=$({ cat workflows.sh; echo "$kwok"; } | sha256sum | cut -c1-12)
out=$cache/workflows-$hash
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
# sources MODULE FOLDER: the folder of a module's sources, which has FOLDER. It is of no go.mod here: the module's own pins and replaces hold.
# Call it in an assignment of its own: a failure within the argument of another command ends nothing.
sources() {
	local answer dir
	answer=$(go mod download -json "$1") || true
	dir=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$answer")
	if [[ -z $dir || ! -d $dir/$2 ]]; then
		say "found no sources of $1 with the folder $2; go mod download answered: $answer"
		return 1
	fi
	echo "$dir"
}

say "building Argo Workflows $version, once, into $out (12 minutes on two busy cores when nothing is cached)"
argo=$(sources "$module@$version" cmd)
clusterlogs=$(sources "$kwok" kustomize/crd/bases)/kustomize/crd/bases/kwok.x-k8s.io_clusterlogs.yaml
# The server embeds a user interface that the module does not have, and nothing can be laid over a file of the module cache: so
# the sources are copied, and get an empty page.
src=$out/src
rm -rf "$src"
trap 'rm -rf "$src"' EXIT
cp -r "$argo/." "$src"
chmod -R u+w "$src"
mkdir -p "$src/ui/dist/app"
echo '<!doctype html>' >"$src/ui/dist/app/index.html"
flags="-s -w -X $module.version=$version -X $module.gitTag=$version -X $module.gitTreeState=clean -X $module.buildDate=1970-01-01T00:00:00Z"
for command in workflow-controller argo; do
	[[ -x $out/bin/$command ]] && continue
	say "building $command"
	(cd "$src" && nice go build -trimpath -ldflags "$flags" -o "$out/bin/.$command" "./cmd/$command" >&2)
	mv "$out/bin/.$command" "$out/bin/$command"
done
# The full definition of workflows is larger than what the API server takes; in the minimal ones the controller and the server check alone.
install -m 0644 "$src"/manifests/base/crds/minimal/argoproj.io_*.yaml "$clusterlogs" "$out/manifests/"
touch "$out/complete"
say "done"
echo "$out"
