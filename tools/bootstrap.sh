#!/bin/bash
# Makes .venv from the lock (requirements.txt), with bin/kafka-rollout in it. Does nothing when it is up to date.
#   PYTHON=python3.12 tools/bootstrap.sh    another interpreter
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "setup: $*" >&2; exit 2; }

python=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
[ -n "$python" ] || fail "no python3 was found. Install Python 3.11 or newer."
stamp=.venv/.kafka-rollout
# The settings of ruff and what follows them in pyproject.toml change nothing that is installed.
state=$({ cat requirements.txt tools/bootstrap.sh consumer/pyproject.toml data_source/pyproject.toml tools/derivation/pyproject.toml; sed '/^\[tool\.ruff/,$d' pyproject.toml; pwd -P; } | sha256sum | cut -d' ' -f1)
if [ -x .venv/bin/kafka-rollout ] && [ "$(cat $stamp 2>/dev/null)" = "$state" ]; then exit 0; fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$("$python" -V) is too old. Set PYTHON to a 3.11 or newer."
"$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$("$python" -V) has no venv. Install python3-venv."

# One make at a time; the kernel lets go when the holder dies.
exec 9>.setup.lock
flock 9
if [ -x .venv/bin/kafka-rollout ] && [ "$(cat $stamp 2>/dev/null)" = "$state" ]; then exit 0; fi

# A network with a private certificate authority: trust what the system trusts.
for bundle in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
  if [ -f "$bundle" ]; then export SSL_CERT_FILE=$bundle PIP_CERT=${PIP_CERT:-$bundle}; break; fi
done
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

locked() { awk -v name="$1" 'index($0, name "==") == 1 { on = 1 } on { print } on && !/\\$/ { exit }' requirements.txt; }

rm -f $stamp
[ -x .venv/bin/python ] || { echo "setup: making .venv with $("$python" -V)"; "$python" -m venv .venv; }
if ! .venv/bin/uv --version >/dev/null 2>&1; then
  echo "setup: installing uv"
  .venv/bin/python -m pip install --quiet --require-hashes --no-deps -r <(locked uv)
fi
# pip may know a mirror that uv does not.
mirror=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
if [ -z "${UV_DEFAULT_INDEX:-}" ] && [ -n "$mirror" ]; then export UV_DEFAULT_INDEX=$mirror; fi

uv() { .venv/bin/uv "$@"; }
export VIRTUAL_ENV=$PWD/.venv
# Airflow starts a process for every task: compiled now, not by each of them (where PYTHONDONTWRITEBYTECODE is set).
export UV_COMPILE_BYTECODE=1
echo "setup: installing $(grep -c '^[a-z0-9].*==' requirements.txt) Python packages (some hundred megabytes the first time)"
# setuptools first: pyspark comes as source, and what builds it shall be locked as well.
uv pip install --quiet --require-hashes --no-deps -r <(locked setuptools)
uv pip sync --quiet --require-hashes --no-build-isolation requirements.txt
uv pip install --quiet --no-deps --no-build-isolation --editable . --editable ./consumer --editable ./data_source --editable ./tools/derivation
echo "setup: compiling what scans logs"
.venv/bin/python -m kafka_rollout_spark.decode || echo "setup: that did not work; the first scan will do it"
echo "$state" > $stamp
echo "setup: .venv is ready ($(.venv/bin/python -V))"
