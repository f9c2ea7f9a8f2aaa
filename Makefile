# Everything a clone needs. As root on Debian, `make venv` installs Java and PostgreSQL where they are missing.
PYTHON ?= python3
VENV   := $(CURDIR)/.venv
BIN    := $(VENV)/bin
export PYTHON

.PHONY: venv demo lint test-unit test-unit-package test-unit-others test test-spark test-sail test-e2e test-streams test-kafka test-others test-runs test-full bench clean

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

# Parts side by side, each with servers of its own: small tests wait for processes, servers and disks most of the time.
# The longest are the first to start; the others take the place of whichever ends first.
test: lint
	$(MAKE) --no-print-directory --jobs=3 --output-sync=target test-spark test-e2e test-sail test-runs test-others test-streams test-kafka

# Of tests/run, on both engines, as the connectors are.
ON_BOTH := tests/connectors tests/run/test_stage.py
# What is long on Spark, and runs on Sail in its short form.
ON_SAIL := tests/run/test_effects.py tests/run/test_effects_shown.py tests/run/test_truncation.py

test-spark: venv
	$(BIN)/python -m pytest -m "engine and not full" $(ON_BOTH)

test-runs: venv
	$(BIN)/python -m pytest -m "engine and not full" --ignore=tests/e2e $(ON_BOTH:%=--ignore=%)

test-sail: venv
	FLOWCTL_TEST_SPARK=sail $(BIN)/python -m pytest -m "engine and not full" $(ON_BOTH) $(ON_SAIL)

test-e2e: venv
	$(BIN)/python -m pytest -m "not full" tests/e2e --ignore=tests/e2e/streams --ignore=tests/e2e/kafka

test-streams: venv
	$(BIN)/python -m pytest -m "not full" tests/e2e/streams

test-kafka: venv
	$(BIN)/python -m pytest -m "not full" tests/e2e/kafka

test-others: venv
	$(BIN)/python -m pytest -m "not full and not engine" --ignore=tests/e2e

# The long matrices, a real S3 protocol and Vault (both need Go), and the connectors' suite once more over Spark Connect
# and on Sail, with what counts effects.
test-full: lint
	FLOWCTL_TEST_S3=versitygw $(BIN)/python -m pytest
	FLOWCTL_TEST_SPARK=connect $(BIN)/python -m pytest -m engine tests/connectors
	FLOWCTL_TEST_SPARK=sail $(BIN)/python -m pytest -m engine $(ON_BOTH) $(ON_SAIL)

# All cases at scale 1 beside all peers, some hours on a machine that has nothing else to do; writes bench/RESULTS.md.
bench: venv
	$(BIN)/flowctl setup
	$(BIN)/python -m bench setup
	$(BIN)/python -m bench run

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo dist bench/.venvs bench/data
