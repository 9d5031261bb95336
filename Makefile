# `make help` lists what there is. Every target makes .venv first if it is missing or its lock changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup setup-browser setup-postgres demo test test-fast test-full lint bench bench-roll bench-rebalance bench-scan bench-scan-start lock clean

BIN := .venv/bin
CACHE := $(BIN)/python -m kafka_rollout.adapters.releases.cache
FROM ?= 3.9.1
TO ?= 4.3.1
APPROVE ?=
ARGS ?=
# Files of tests side by side: most of their time is waiting for brokers and for Airflow. In the order of their names
# the long ones come early.
WORKERS ?= -n 2 --dist loadfile --no-loadscope-reorder

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## .venv from the lock, with kafka-rollout in its bin folder
	@tools/bootstrap.sh

setup-browser: setup
	@tools/browser.sh

setup-postgres:
	@tools/postgres.sh

demo: setup ## a real cluster rolled from FROM to TO, up or down, under live traffic (APPROVE=auto: unattended)
	@$(CACHE) $(FROM) $(TO) agents >/dev/null
	@$(BIN)/kafka-rollout demo --from $(FROM) --to $(TO) $(if $(APPROVE),--approve $(APPROVE)) $(ARGS)

test-fast: setup ## tests without a JVM, in under a minute
	$(BIN)/python -m pytest -n 2 -m "not (jvm or airflow or spark or integration or browser or full)" tests/unit tests/architecture $(ARGS)

test: setup setup-browser ## all tests, real brokers included, but the larger matrix
	@$(CACHE) 3.4.0 3.4.1 3.9.1 4.0.1 4.1.1 4.2.1 4.3.1 agents >/dev/null
	$(BIN)/python -m pytest $(WORKERS) -m "not full" $(ARGS)

test-full: setup setup-browser setup-postgres ## the larger matrix as well
	$(BIN)/python -m pytest $(WORKERS) --hypothesis-profile=exploring $(ARGS)

lint: setup ## ruff, mypy and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy plugins/kafka_rollout spark_jobs tools
	$(BIN)/lint-imports

bench: bench-roll bench-rebalance bench-scan bench-scan-start ## all benchmarks

bench-roll: setup ## the same roll by a bare script and by the DAG
	$(BIN)/python bench/roll.py $(ARGS)

bench-rebalance: setup ## groups that rebalance by each protocol, side by side
	@$(CACHE) 4.3.1 agents >/dev/null
	$(BIN)/python bench/rebalance.py $(ARGS)

bench-scan: setup ## scans of coordinator logs beside what else could read them (12 GB of disk; ARGS=--quick)
	@$(CACHE) 4.3.1 agents >/dev/null
	$(BIN)/python bench/scan.py $(ARGS)

bench-scan-start: setup ## a scan of a small log and a bare Spark session, in turn
	$(BIN)/python bench/scan_start.py $(ARGS)

lock: setup ## resolve requirements.in anew into requirements.txt
	$(BIN)/uv pip compile requirements.in --override requirements-overrides.txt --python-version 3.11 --universal \
	  --generate-hashes --custom-compile-command "make lock" --quiet --output-file requirements.txt

clean: ## end what this checkout started, and remove what it made (not the shared cache of releases)
	@if [ -x $(BIN)/kafka-rollout ]; then $(BIN)/kafka-rollout demo-clean; fi
	rm -rf .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse metastore_db
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
