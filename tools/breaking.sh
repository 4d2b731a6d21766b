#!/usr/bin/env bash
# Compares the protocol buffers with those on the main branch, where there is one to compare with: breaking.sh BUF
set -euo pipefail
cd "$(dirname "$0")/.."
for base in "${LOCKSTEP_BASE:-}" refs/remotes/origin/main refs/heads/main; do
  if [ -n "$base" ] && commit=$(git rev-parse -q --verify "$base^{commit}"); then
    exec "$1" breaking --against ".git#ref=$commit"
  fi
done
echo "breaking.sh: neither origin/main nor main here; set LOCKSTEP_BASE to compare protocol buffers with another commit" >&2
