#!/usr/bin/env bash
# Prints where the model checker Spin is, and installs Debian's where there is none: with apt-get for root, and else unpacked from its
# package into the cache. SPIN names another one.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/spin

# ours PROGRAM: other programs have the same name.
ours() { "$1" -V 2>/dev/null | grep -q '^Spin Version 6'; }

for program in "${SPIN:-spin}" "$cache/usr/bin/spin"; do
  if ours "$program"; then
    command -v "$program"
    exit
  fi
done
if [ -n "${SPIN:-}" ] || ! command -v apt-get >/dev/null; then
  echo "Spin: found none; expected Spin 6 as ${SPIN:-spin} (apt-get install spin, brew install spin, or SPIN=/path/to/it)" >&2
  exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  if [ "$(id -u)" = 0 ]; then
    apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends spin
  else
    mkdir -p "$cache" && cd "$cache" && apt-get download spin && dpkg -x spin_*.deb .
  fi
}
echo "installing spin, once" >&2
for pause in 0 5 20; do
  sleep "$pause"
  if (install) >>"$log" 2>&1; then break; fi
  if [ "$(id -u)" = 0 ]; then apt-get update >>"$log" 2>&1 || true; fi
done
for program in spin "$cache/usr/bin/spin"; do
  if ours "$program"; then
    command -v "$program"
    exit
  fi
done
tail -20 "$log" >&2
echo "Spin: could not be installed; expected Spin 6 (SPIN=/path/to/it names one)" >&2
exit 1
