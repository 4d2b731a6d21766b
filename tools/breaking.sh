#!/usr/bin/env bash
# Compares the protocol buffers and the GraphQL schema with those on the main branch, where there is one to compare with: breaking.sh BUF
set -euo pipefail
cd "$(dirname "$0")/.."
schema=services/domain/internal/api/graph
for base in "${LOCKSTEP_BASE:-}" refs/remotes/origin/main refs/heads/main; do
  if [ -n "$base" ] && commit=$(git rev-parse -q --verify "$base^{commit}"); then
    before=$(mktemp -d); trap 'rm -rf "$before"' EXIT
    git archive "$commit" $(git ls-tree -r --name-only "$commit" "$schema" | grep '\.graphqls$') | tar -x -C "$before"
    go run ./services/domain/internal/api/graph/contract/compare "$before/$schema" "$schema/schema"
    "$1" breaking --against ".git#ref=$commit"
    exit
  fi
done
echo "breaking.sh: neither origin/main nor main here; set LOCKSTEP_BASE to compare the protocol buffers and the GraphQL schema with another commit" >&2
