#!/bin/bash
# Installs Debian's PostgreSQL server for the tests of the run history, or prints how to install it.
set -euo pipefail
works() { compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null; }
works && exit 0
remedy="Install it (Debian: apt-get install postgresql), then run this command again."
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "setup-postgres: the PostgreSQL server is missing. $remedy" >&2
  exit 2
fi
echo "setup-postgres: installing postgresql"
log=$(mktemp)
# Create no default cluster: the tests start their own servers.
mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/kafka-rollout.conf
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql; } >"$log" 2>&1 || ! works; then
  tail -n 5 "$log" >&2
  echo "setup-postgres: no PostgreSQL server after the installation. $remedy" >&2
  exit 2
fi
rm -f "$log"
