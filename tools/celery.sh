#!/bin/bash
# Installs the packages of the CeleryExecutor into .celery, for the test of Airflow on several hosts. Airflow itself is
# not changed.
set -euo pipefail
cd "$(dirname "$0")/.."
cmp -s requirements-celery.txt .celery/requirements.txt && exit 0
rm -rf .celery
.venv/bin/uv pip install --quiet --target .celery --no-deps --require-hashes -r requirements-celery.txt
cp requirements-celery.txt .celery/requirements.txt
