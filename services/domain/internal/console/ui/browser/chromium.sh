#!/usr/bin/env bash
# Makes sure that there is a Chromium: Debian's, installed where that is possible. CHROMIUM names another one.
set -euo pipefail
if command -v "${CHROMIUM:-chromium}" >/dev/null; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Chromium, once" >&2
  log=$(mktemp)
  { apt-get install -y --no-install-recommends chromium || { apt-get update && apt-get install -y --no-install-recommends chromium; }; } >"$log" 2>&1 || { tail -20 "$log" >&2; exit 1; }
else
  echo "Chromium: found none; expected one at ${CHROMIUM:-chromium} (apt-get install chromium, or CHROMIUM=/path/to/it)" >&2
  exit 1
fi
