#!/bin/bash
# Installs Debian's Redis server, and the packages of the CeleryExecutor into .celery, for the test of Airflow on several
# hosts; or prints how to install them. Airflow itself is not changed.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v redis-server >/dev/null; then
  remedy="Install it (Debian: apt-get install redis-server), then run this command again."
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then echo "setup-celery: redis-server is missing. $remedy" >&2; exit 2; fi
  echo "setup-celery: installing redis-server"
  log=$(mktemp)
  if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "setup-celery: redis-server was not installed. $remedy" >&2
    exit 2
  fi
  rm -f "$log"
fi
if ! cmp -s requirements-celery.txt .celery/requirements.txt; then
  rm -rf .celery
  .venv/bin/uv pip install --quiet --target .celery --no-deps --require-hashes -r requirements-celery.txt
  cp requirements-celery.txt .celery/requirements.txt
fi
