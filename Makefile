SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: venv
venv: $(VENV)/.ready ## Make the virtual environment, from hashed locks

$(VENV)/.ready: pyproject.toml locks/dev.txt
	@echo "==> virtual environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r locks/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

CHECKED := sdk operator tools tests examples

.PHONY: check
check: venv ## Format, lint, types, import rules
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy sdk operator tools tests
	$(BIN)/lint-imports

.PHONY: format
format: venv ## Format the code and mend what can be mended by itself
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --fix $(CHECKED)

.PHONY: test test-units test-cluster
test: check test-units test-cluster ## All tests; brings the cluster up and leaves it up

# What takes minutes is built beforehand, so that no test's time is spent on it. There is one worker more than
# processors, since many tests wait for processes.
test-units: venv ## The tests that need no cluster
	$(BIN)/python -m tools.cluster build helm versitygw etcd kubernetes
	$(BIN)/python -m tools.known_bad
	$(BIN)/pytest -n $$(($$(nproc) + 1)) --dist worksteal -m "not e2e"

test-cluster: venv ## The tests on the cluster
	$(BIN)/python -m tools.cluster up
	$(BIN)/pytest -m e2e

.PHONY: demo
demo: venv ## The main job on a real cluster, with an eviction in the middle (KEEP=1 leaves it up)
	$(BIN)/python -m tools.demo $(if $(KEEP),--keep)

.PHONY: bench
bench: venv ## The figures, side by side in one run, into build/bench
	$(BIN)/python -m tests.bench

.PHONY: faults
faults: venv ## Kill executors at every request, into build/faults.json (FULL=1: all there is; SEED=n)
	$(BIN)/python -m tests.faults $(if $(FULL),--full) $(if $(SEED),--seed $(SEED))

.PHONY: mutants
mutants: venv ## Take each guard of the log out in turn; a test has to fail each time
	$(BIN)/python -m tools.mutants

.PHONY: cluster cluster-down
cluster: venv ## Bring the cluster up
	$(BIN)/python -m tools.cluster up

cluster-down: venv ## End the cluster and all that runs in it
	$(BIN)/python -m tools.cluster down

.PHONY: requirements
requirements: venv ## Which tests prove which requirements
	@$(BIN)/python tools/requirements.py

# Both write files that are under version control; tests hold them to their sources.
.PHONY: crds golden
crds: venv ## Generate the CRD from the types
	$(BIN)/python -m tools.crds

golden: venv ## Rewrite the golden files, and the pages that are written from code
	MILEPOST_REWRITE_GOLDEN=1 $(BIN)/pytest --quiet tests/chart tests/operator tests/sdk/cli tests/sdk/checkpoint/test_formats.py
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.mutants.page

LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --upgrade --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --python-version 3.11 --python-platform linux

.PHONY: locks
locks: venv ## Pin the newest versions that pyproject.toml allows
	@mkdir -p locks
	$(LOCK) --output-file locks/executor.txt
	$(LOCK) --extra operator --output-file locks/operator.txt
	$(LOCK) --extra dev --output-file locks/dev.txt
	echo hatchling | $(subst pyproject.toml,-,$(LOCK)) --output-file locks/build.txt

.PHONY: clean
clean: ## Remove what was built in the tree; the caches outside of it stay
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
