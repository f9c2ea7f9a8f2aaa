# Everything a clone needs. As root on Debian, `make venv` installs Java and PostgreSQL where they are missing.
PYTHON ?= python3
VENV   := $(CURDIR)/.venv
BIN    := $(VENV)/bin
export PYTHON

.PHONY: venv demo lint test-unit test-unit-package test-unit-others test test-spark test-sail test-e2e test-streams test-kafka test-others test-full bench clean

venv: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt scripts/install-system.sh scripts/install-python.sh
	scripts/install-system.sh venv java postgresql mariadb
	scripts/install-python.sh $(VENV) dev
	touch $@

# From nothing to a finished run on real data, then a changed source; again and again.
demo: venv
	$(BIN)/flowctl setup
	$(BIN)/python scripts/demo.py

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy -p bench
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_lines.py flowctl tests scripts bench

# Everything that starts no database, object store, engine or JVM. Two parts side by side: much of it is waiting, most
# of all in these folders.
WAITING := tests/state tests/cli tests/observe

test-unit: venv
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-unit-package test-unit-others

test-unit-package: venv
	$(BIN)/python -m pytest -m "not full and not server" $(WAITING:%=--ignore=%)

test-unit-others: venv
	$(BIN)/python -m pytest -m "not full and not server" $(WAITING)

# A part that hangs, even as it ends, is stopped, and prints how far it came.
PYTEST := timeout --kill-after=60 2400 $(BIN)/python -m pytest

# Parts side by side, each with servers of its own: small tests wait for processes, servers and disks most of the time.
# The longest are the first to start; the next ones take the place of whichever ends first.
test: venv
	$(MAKE) --no-print-directory --jobs=3 --output-sync=target lint test-others test-sail test-spark test-e2e test-kafka test-streams

# The connectors run on both engines; what a run does with rows is the same on both, and takes a fifth of the time on Sail.
test-spark: venv
	$(PYTEST) -m "engine and not full" tests/connectors tests/engine

test-sail: venv
	FLOWCTL_TEST_SPARK=sail $(PYTEST) -m "engine and not full" tests/connectors tests/run

test-e2e: venv
	$(PYTEST) -m "not full" tests/e2e --ignore=tests/e2e/streams --ignore=tests/e2e/kafka

test-streams: venv
	$(PYTEST) -m "not full" tests/e2e/streams

test-kafka: venv
	$(PYTEST) -m "not full" tests/e2e/kafka

test-others: venv
	$(PYTEST) -m "not full and not engine" --ignore=tests/e2e

# Everything, the long matrices included, with a real S3 protocol and Vault (both need Go); the connectors' suite also on
# Sail and, without its long matrices, over Spark Connect: these differ by engine, not by how Spark is reached. Every
# source and every target is on Sail; on Spark are the targets that it writes, and a smoke set of the others.
# Each part can be run by itself.
FULL := full-e2e full-kafka full-streams full-spark full-matrix full-sail full-connect full-others
MATRIX := tests/connectors/matrix tests/connectors/test_hostile_flows.py
.PHONY: $(FULL)

test-full: lint
	$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target $(FULL)

$(FULL): export FLOWCTL_TEST_S3 = versitygw
$(FULL): export FLOWCTL_TEST_EXAMPLES = 10

full-e2e: venv
	$(BIN)/python -m pytest tests/e2e --ignore=tests/e2e/streams --ignore=tests/e2e/kafka

full-kafka: venv
	$(BIN)/python -m pytest tests/e2e/kafka

full-streams: venv
	$(BIN)/python -m pytest tests/e2e/streams

full-spark: venv
	$(BIN)/python -m pytest -m engine tests/connectors tests/engine tests/run $(MATRIX:%=--ignore=%)

full-matrix: venv
	$(BIN)/python -m pytest $(MATRIX)

full-sail: venv
	FLOWCTL_TEST_SPARK=sail $(BIN)/python -m pytest -m engine tests/connectors tests/run

full-connect: venv
	FLOWCTL_TEST_SPARK=connect $(BIN)/python -m pytest -m "engine and not full" tests/connectors $(MATRIX:%=--ignore=%)

full-others: venv
	$(BIN)/python -m pytest -m "not engine" --ignore=tests/e2e $(MATRIX:%=--ignore=%)

# All cases at scale 1 beside all peers, some hours on a machine that has nothing else to do; writes bench/RESULTS.md.
bench: venv
	$(BIN)/flowctl setup
	$(BIN)/python -m bench setup
	$(BIN)/python -m bench run

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo dist bench/.venvs bench/data
