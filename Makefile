SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9

.PHONY: venv
venv: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml locks/dev.txt
	@echo "==> virtual environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r locks/dev.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --upgrade --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --python-version 3.11 --python-platform linux

.PHONY: locks
locks: $(VENV)/.ready
	@mkdir -p locks
	$(LOCK) --output-file locks/executor.txt
	$(LOCK) --extra operator --output-file locks/operator.txt
	$(LOCK) --extra dev --output-file locks/dev.txt
	echo hatchling | $(subst pyproject.toml,-,$(LOCK)) --output-file locks/build.txt

.PHONY: cluster cluster-down
cluster: venv
	$(BIN)/python -m tools.cluster up

cluster-down: venv
	$(BIN)/python -m tools.cluster down

.PHONY: requirements
requirements: venv
	@$(BIN)/python tools/requirements.py

# Both write files that are under version control; tests hold them to their sources.
.PHONY: crds golden
crds: venv
	$(BIN)/python -m tools.crds

golden: venv
	MILEPOST_REWRITE_GOLDEN=1 $(BIN)/pytest --quiet tests/chart
