#!/usr/bin/env bash
# Builds the real cluster of the end-to-end tests once into the user's cache, and prints the folder: bin/ and manifests/.
# The folder is named for what is in it, so that another pin is another build. A cold build takes about 25 minutes on two
# cores and downloads about 2 GB; what an interrupted one has finished is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# KWOK does not compile against the modules of this one, so it is built alone.
kwok=sigs.k8s.io/kwok
kwok_version=v0.7.0

cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
hash=$(cat build.sh go.mod go.sum argocd/main.go redis/main.go | sha256sum | cut -c1-12)
out=$cache/cluster-$hash
if [[ -f $out/complete ]]; then
	echo "$out"
	exit
fi

mkdir -p "$out/bin" "$out/manifests"
exec 9>"$out/lock"
flock 9
export GOWORK=off GOFLAGS=-buildvcs=false GOTOOLCHAIN=${GOTOOLCHAIN:-auto}
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }

kubernetes=$(go list -m -f '{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}' k8s.io/kubernetes)
minor=${kubernetes#v1.}
# Without a version of its own the API server reports one that clients cannot parse.
version="-X k8s.io/component-base/version.gitVersion=$kubernetes -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%%.*}"

# build NAME PACKAGE [FLAG]…
build() {
	local name=$1 package=$2
	shift 2
	[[ -x $out/bin/$name ]] && return
	say "building $name"
	nice go build "$@" -o "$out/bin/.$name" "$package" >&2
	mv "$out/bin/.$name" "$out/bin/$name"
}

say "building the cluster of the end-to-end tests, once, into $out (25 minutes on two cores when nothing is cached)"
for command in kube-apiserver kube-controller-manager kube-scheduler; do
	build "$command" "k8s.io/kubernetes/cmd/$command" -ldflags "$version"
done
build etcd go.etcd.io/etcd/server/v3
build rollouts-controller github.com/argoproj/argo-rollouts/cmd/rollouts-controller
build argocd ./argocd
build redis ./redis
for name in argocd-application-controller argocd-repo-server; do ln -sf argocd "$out/bin/$name"; done
if [[ ! -x $out/bin/kwok ]]; then
	say "building kwok"
	GOBIN=$out/bin nice go install "$kwok/cmd/kwok@$kwok_version" >&2
fi

# The folder of a module's sources.
module() { go list -m -f '{{.Dir}}' "$1"; }
rollouts=$(module github.com/argoproj/argo-rollouts)
argocd=$(module github.com/argoproj/argo-cd/v3)
stages=$(go mod download -json "$kwok@$kwok_version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')/kustomize
for file in "$rollouts"/manifests/crds/*-crd.yaml "$argocd"/manifests/crds/*-crd.yaml "$stages"/crd/bases/kwok.x-k8s.io_stages.yaml \
	"$stages"/stage/node/fast/node-*.yaml "$stages"/stage/node/heartbeat/node-*.yaml "$stages"/stage/pod/fast/pod-*.yaml; do
	install -m 0644 "$file" "$out/manifests/"
done
touch "$out/complete"
say "done"
echo "$out"
