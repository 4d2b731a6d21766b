#!/usr/bin/env bash
# Prints the packages of the workspace that have changed since the branch left main, files that are not committed included, and those that import them:
# what `make check` tests. On main itself it compares with the commit before. With -own it prints the folders of those that have changed
# themselves: what `make check` lints.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
[ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse HEAD~1 2>/dev/null || git rev-parse HEAD)
changed=$({ git diff --name-only "$base"; git ls-files -o --exclude-standard; } | xargs -r -n1 dirname | sort -u)
[ -n "$changed" ] || exit 0
root=$PWD
# A folder of testdata, of SQL or of a console belongs to the nearest package above it.
wanted=$(for dir in $changed; do
	from=$dir
	while [ "$dir" != . ] && ! compgen -G "$dir/*.go" >/dev/null; do dir=$(dirname "$dir"); done
	[ "$dir" = . ] || echo "$root/$dir"
	# Pages and workflow files are checked by the tests of tools/arch.
	case "$from" in docs*|.*) echo "$root/tools/arch";; esac
done | sort -u)
go list -f '{{.Dir}} {{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}' work |
	awk -v wanted="$wanted" -v own="${1:-}" -v root="$root/" '
		BEGIN { n = split(wanted, list, "\n"); for (i = 1; i <= n; i++) dirs[list[i]] = 1 }
		{ dir[NR] = $1; path[NR] = $2; for (i = 3; i <= NF; i++) imports[NR] = imports[NR] " " $i " "; if ($1 in dirs) changed[$2] = 1 }
		END {
			if (own != "") { for (i = 1; i <= NR; i++) if (path[i] in changed) print "./" substr(dir[i], length(root) + 1); exit }
			for (i = 1; i <= NR; i++) { take = path[i] in changed; for (c in changed) if (index(imports[i], " " c " ")) take = 1; if (take) print path[i] } }'
