# `make help` lists the targets. Every target creates .venv first if it is missing or its lock changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup setup-browser setup-ssh setup-postgres setup-celery demo testbed demo-hosts faults setup-hosts test test-fast test-full lint docs pictures reference bench bench-roll bench-batches bench-rebalance bench-downgrade bench-rehearsal bench-hosts bench-scan bench-scan-start bench-check bench-dag-size bench-dag-pages bench-fleet bench-gates bench-leaders-first bench-many-batches bench-neighbours bench-data-source bench-scheduler-pass lock clean

BIN := .venv/bin
CACHE := $(BIN)/python -m kafka_rollout.releases.jars.cache
NEWEST := 4.4.0
FROM ?= 3.9.1
TO ?= 4.3.1
APPROVE ?=
MINUTES ?= 10
SEED ?= 1
RUNTIME ?= local
ARGS ?=
# Four workers for two cores: half of the time, a test waits for brokers. tests/scheduling.py decides which file runs where
# and in which order.
WORKERS ?= -n 4 --dist loadfile --no-loadscope-reorder
# A test that its own time limit cannot end, because it waits in C or because code of others catches the exception: its
# worker prints the stacks of all threads and exits, pytest-xdist names the test, and a new worker goes on.
ENDS_HUNG = -o faulthandler_timeout=1100 -o faulthandler_exit_on_timeout=true

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## create .venv from the lock; kafka-rollout is in its bin folder
	@tools/bootstrap.sh

setup-browser: setup
	@tools/debian.sh $@ "command -v chromium && $(BIN)/python -m playwright --version" chromium fonts-dejavu-core libatomic1

setup-ssh:
	@tools/debian.sh $@ "command -v ssh-agent" openssh-client

setup-postgres:
	@tools/debian.sh $@ "compgen -G '/usr/lib/postgresql/*/bin/initdb'" postgresql

setup-celery: setup
	@tools/debian.sh $@ "command -v redis-server" redis-server
	@tools/celery.sh

demo: setup ## upgrade or downgrade a real cluster from FROM to TO with test traffic (APPROVE=auto: unattended)
	@$(CACHE) $(FROM) $(TO) agents >/dev/null
	@$(BIN)/python -m tools.demo --from $(FROM) --to $(TO) $(if $(APPROVE),--approve $(APPROVE)) $(ARGS)

testbed: setup ## boot six real hosts with systemd, sshd and Kafka FROM on this machine (COMMAND=down: remove them)
	@$(CACHE) $(FROM) $(TO) agents >/dev/null
	@$(BIN)/python -m tools.testbed $(or $(COMMAND),up --release $(FROM) --installed $(TO)) $(ARGS)

demo-hosts: setup ## upgrade a cluster on real hosts from FROM to TO through SSH, with Airflow (needs root; APPROVE=auto: unattended)
	@$(CACHE) $(FROM) $(TO) agents >/dev/null
	@$(BIN)/python -m tools.testbed image
	@$(BIN)/python -m tools.testbed.demo --from $(FROM) --to $(TO) $(if $(APPROVE),--approve $(APPROVE)) $(ARGS)

faults: setup setup-postgres ## change a cluster again and again while faults happen (MINUTES, SEED, RUNTIME=local or hosts)
	@$(CACHE) 3.9.1 4.2.1 4.3.1 agents >/dev/null
	@if [ $(RUNTIME) = hosts ]; then $(BIN)/python -m tools.testbed image; fi
	@$(BIN)/python -m tools.faults run --minutes $(MINUTES) --seed $(SEED) --runtime $(RUNTIME) $(ARGS)

setup-hosts: setup
	@$(BIN)/python -m tools.testbed image || echo "setup: the tests with real hosts are skipped"

test-fast: setup setup-ssh ## run the tests that need no Java (about five minutes)
	$(BIN)/python -m pytest -n 2 -m "not (jvm or airflow or spark or integration or browser or full)" tests/unit tests/architecture $(ARGS)

test: setup setup-browser setup-ssh ## run the tests of every area, with real brokers (the larger matrix: test-full)
	@$(CACHE) 3.4.0 3.4.1 3.9.1 4.0.1 4.1.1 4.2.1 4.3.1 $(NEWEST) agents >/dev/null
	$(BIN)/python -m pytest $(WORKERS) -m "not full" $(ENDS_HUNG) $(ARGS)

test-full: setup setup-browser setup-ssh setup-hosts setup-postgres setup-celery ## run all tests with the larger matrix
	$(BIN)/python -m pytest $(WORKERS) --hypothesis-profile=exploring $(ARGS)

lint: setup ## check with ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy plugins/kafka_rollout spark_jobs data_source consumer tools tests bench
	$(BIN)/lint-imports
	@$(BIN)/python -m tools.words

docs: setup ## build the documentation as a site in .site/html
	@$(BIN)/python -m tools.docs_site
	@$(BIN)/python -m tools.docs_words | tail -n 1
	@$(BIN)/zensical build --clean --strict --config-file mkdocs.yml

pictures: setup setup-browser ## take the pictures of docs/images from real runs in Airflow (6 minutes)
	@$(CACHE) 4.2.1 4.3.1 $(NEWEST) agents >/dev/null
	KAFKA_ROLLOUT_PICTURES=1 KAFKA_ROLLOUT_REHEARSE=1 $(BIN)/python -m pytest tests/integration/upgrade/test_pictures.py $(ARGS)

reference: setup ## write the reference parts of docs/ from the code: findings, commands, parameters, settings, …
	@$(BIN)/python -m tools.reference_pages

bench: bench-roll bench-batches bench-hosts bench-rebalance bench-downgrade bench-rehearsal bench-scan bench-scan-start bench-check bench-dag-size bench-dag-pages bench-fleet bench-gates bench-leaders-first bench-many-batches bench-neighbours bench-data-source bench-scheduler-pass ## run all benchmarks

bench-roll: setup ## compare the same roll by a plain script and by the DAG
	$(BIN)/python -m bench.roll $(ARGS)

bench-many-batches: setup ## measure Airflow's load and time for each batch while many batches wait
	$(BIN)/python -m bench.many_batches $(ARGS)

bench-scheduler-pass: setup ## measure a pass of Airflow's scheduler while many batches wait
	$(BIN)/python -m bench.scheduler_pass $(ARGS)

bench-batches: setup ## time the planning of batches, and simulate a roll in batches
	$(BIN)/python -m bench.batches $(ARGS)

bench-hosts: setup-hosts ## compare the roll of real hosts by a shell script and by the tool (needs root)
	@$(CACHE) 3.9.1 4.3.1 agents >/dev/null
	$(BIN)/python -m bench.hosts $(ARGS)

bench-rebalance: setup ## compare groups that rebalance by each protocol
	@$(CACHE) 4.3.1 agents >/dev/null
	$(BIN)/python -m bench.rebalance $(ARGS)

bench-downgrade: setup ## compare a live and an offline downgrade with a rolling restart
	$(BIN)/python -m bench.downgrade $(ARGS)

bench-scan: setup ## compare scans of coordinator logs with other readers (12 GB of disk; ARGS=--quick)
	@$(CACHE) 4.3.1 agents >/dev/null
	$(BIN)/python -m bench.scan $(ARGS)

bench-rehearsal: setup ## time a rehearsal of 100 and of 10,000 partitions (ARGS=--only small)
	@$(CACHE) 3.9.1 4.3.1 agents >/dev/null
	$(BIN)/python -m bench.rehearsal $(ARGS)

bench-check: setup ## time the check of a simulated cluster of 200 brokers
	@$(CACHE) 4.3.1 >/dev/null
	$(BIN)/python -m bench.check $(ARGS)

bench-scan-start: setup ## compare a scan of a small log with a bare Spark session
	$(BIN)/python -m bench.scan.start $(ARGS)

bench-dag-size: setup ## measure size and parsing of the DAGs up to 1,000 brokers
	$(BIN)/python -m bench.dag_size $(ARGS)

bench-dag-pages: setup setup-browser ## time Airflow's grid and graph of a DAG in Chromium, up to 1,000 brokers
	$(BIN)/python -m bench.dag_pages $(ARGS)

bench-gates: setup ## measure one check of a gate with up to 200,000 partitions (ARGS=--real: real brokers)
	$(BIN)/python -m bench.gates $(ARGS)

bench-leaders-first: setup ## measure a batch that moves its leaderships before it stops
	$(BIN)/python -m bench.leaders_first $(ARGS)

bench-neighbours: setup ## measure the DAG of a neighbour while the database of this project does not respond
	$(BIN)/python -m bench.neighbours $(ARGS)

bench-data-source: setup ## compare the rows of the data source with the counts of a scan
	$(BIN)/python -m bench.data_source $(ARGS)

bench-fleet: setup ## measure the pages with twelve clusters of 200 nodes and 1,000 runs each
	$(BIN)/python -m bench.fleet $(ARGS)

lock: setup ## resolve requirements.in into requirements.txt again, and what follows from it
	$(BIN)/uv pip compile requirements.in --python-version 3.11 --universal \
	  --generate-hashes --custom-compile-command "make lock" --quiet --output-file requirements.txt
	echo setuptools | $(BIN)/uv pip compile pyproject.toml - --extra all --constraints requirements.txt --python-version 3.11 --universal \
	  --no-annotate --generate-hashes --custom-compile-command "make lock" --quiet --output-file requirements-image.txt
	{ echo "# By make lock: the versions of requirements-image.txt, without hashes."; \
	  sed -n '/^[a-z0-9]/s/ *\\$$//p' requirements-image.txt; } > constraints.txt
	$(BIN)/uv pip compile requirements-celery.in --constraints requirements.txt --no-deps --python-version 3.11 --universal \
	  --generate-hashes --custom-compile-command "make lock" --quiet --output-file requirements-celery.txt

clean: ## stop the demos of this checkout and remove its files (not the shared cache of releases)
	@if [ -e .testbed ]; then $(BIN)/python -m tools.testbed down; fi
	@if [ -x $(BIN)/kafka-rollout ]; then $(BIN)/kafka-rollout clean; fi
	rm -rf .demo .site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse metastore_db
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
