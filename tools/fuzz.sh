#!/usr/bin/env bash
# Runs every fuzz target of the workspace for a while, one after the other: fuzz.sh 2m. What it finds is written below the package's testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-1m}
git ls-files '*_test.go' | xargs grep -lE '^func Fuzz' | xargs -n1 dirname | sort -u | while read -r dir; do
	targets=$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | sed 's/^func //' | sort -u)
	for target in $targets; do
		echo "$dir $target"
		(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$each" .)
	done
done
