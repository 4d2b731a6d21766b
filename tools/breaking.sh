#!/usr/bin/env bash
# Compares the protocol buffers, the GraphQL schema and the events' schemas with those on the main branch, where there is one to compare with: breaking.sh BUF
set -euo pipefail
cd "$(dirname "$0")/.."
schema=services/domain/internal/api/graph
for base in "${LOCKSTEP_BASE:-}" refs/remotes/origin/main refs/heads/main; do
  if [ -n "$base" ] && commit=$(git rev-parse -q --verify "$base^{commit}"); then
    before=$(mktemp -d); trap 'rm -rf "$before"' EXIT
    git archive "$commit" $(git ls-tree -r --name-only "$commit" "$schema" | grep '\.graphqls$') | tar -x -C "$before"
    go run ./services/domain/internal/api/graph/contract/compare "$before/$schema" "$schema/schema"
    git archive "$commit" pkg/event/schema pkg/event/testdata | tar -x -C "$before"
    go run ./pkg/event/contract/compare "$before/pkg/event" pkg/event
    "$1" breaking --against ".git#ref=$commit"
    exit
  fi
done
echo "breaking.sh: neither origin/main nor main here; set LOCKSTEP_BASE to compare the protocol buffers, the GraphQL schema and the events' schemas with another commit" >&2
