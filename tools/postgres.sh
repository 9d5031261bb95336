#!/bin/bash
# The tests of the run history use Debian's PostgreSQL server: have it, or say how.
set -euo pipefail
works() { compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null; }
works && exit 0
remedy="Install it (Debian: apt-get install postgresql), then call again."
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "setup-postgres: the PostgreSQL server is missing. $remedy" >&2
  exit 2
fi
echo "setup-postgres: installing postgresql"
log=$(mktemp)
# No cluster of the machine: the tests start servers of their own.
mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/kafka-rollout.conf
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql; } >"$log" 2>&1 || ! works; then
  tail -n 5 "$log" >&2
  echo "setup-postgres: no PostgreSQL server after the installation. $remedy" >&2
  exit 2
fi
rm -f "$log"
