#!/bin/bash
# Installs Chromium and Playwright's libraries for the browser tests, or prints how to install them.
set -euo pipefail
cd "$(dirname "$0")/.."
works() { command -v chromium >/dev/null && .venv/bin/python -m playwright --version >/dev/null 2>&1; }
works && exit 0
packages="chromium fonts-dejavu-core libatomic1" # libatomic1: Playwright's own runtime
remedy="Install them (Debian: apt-get install $packages), then run this command again."
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "setup-browser: Chromium or a library of Playwright is missing. $remedy" >&2
  exit 2
fi
echo "setup-browser: installing $packages"
log=$(mktemp)
# shellcheck disable=SC2086
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } >"$log" 2>&1 || ! works; then
  tail -n 5 "$log" >&2
  echo "setup-browser: no working Chromium after the installation. $remedy" >&2
  exit 2
fi
rm -f "$log"
