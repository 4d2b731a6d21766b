#!/usr/bin/env bash
# Fails when `make generate` or `make tidy` change the tree. It compares trees, not with HEAD, so that it says the same in a
# checkout with changes that are not committed yet.
set -euo pipefail
cd "$(dirname "$0")/.."

index=$(mktemp)
trap 'rm -f "$index"' EXIT

# tree writes everything that is neither ignored nor .git as a Git tree, without touching the real index.
tree() {
  cp "$(git rev-parse --git-path index)" "$index"
  GIT_INDEX_FILE=$index git add -A
  GIT_INDEX_FILE=$index git write-tree
}

before=$(tree)
make generate
make tidy
after=$(tree)
if [ "$before" != "$after" ]; then
  git --no-pager diff --stat "$before" "$after" >&2
  git --no-pager diff "$before" "$after" | sed -n 1,200p >&2
  echo "drift: the files above are not what their sources say; they have been written anew, look at them and commit" >&2
  exit 1
fi
