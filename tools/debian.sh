#!/bin/bash
# Installs packages of Debian that the tests need, or prints how to install them.
#   tools/debian.sh TARGET CHECK PACKAGE…     CHECK: a command that succeeds when nothing is missing
set -euo pipefail
target=$1 check=$2
shift 2
works() { bash -c "$check" >/dev/null 2>&1; }
works && exit 0
remedy="Install what is missing (Debian: apt-get install $*), then run this command again."
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "$target: a program that the tests need is missing. $remedy" >&2
  exit 2
fi
echo "$target: installing $*"
log=$(mktemp)
if [[ " $* " == *" postgresql "* ]]; then # create no default cluster: the tests start their own servers
  mkdir -p /etc/postgresql-common/createcluster.d
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/kafka-rollout.conf
fi
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1 || ! works; then
  tail -n 5 "$log" >&2
  echo "$target: the installation of $* did not succeed. $remedy" >&2
  exit 2
fi
rm -f "$log"
