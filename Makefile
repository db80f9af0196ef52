# `make` alone lists the targets.  Each sets up what it needs: a virtual environment from the lock, once.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test lint types fmt e2e bench crds replay lock clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## train a model elastically on this machine, then replay its history (KEEP=1 leaves it running)
	@$(VENV)/bin/muster demo $(if $(KEEP),--keep)

test: $(READY) ## unit, property, contract and embedded end-to-end tests
	@$(RUN) -m pytest

e2e: $(READY) ## only the end-to-end tests
	@$(RUN) -m pytest tests/e2e

lint: $(READY) ## style and layers
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/lint-imports

types: $(READY) ## mypy, strict
	@$(VENV)/bin/mypy

fmt: $(READY) ## format
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

bench: $(READY) ## fold, append latency, watch event to decision
	@for file in tests/bench/[a-z]*.py; do $(RUN) -m tests.bench.$$(basename $$file .py) || exit 1; done

crds: $(READY) ## write crds/ from the models
	@$(RUN) -m muster.crds

replay: $(READY) ## fold a saved history, event by event: make replay LOG=file
	@$(VENV)/bin/muster replay $(LOG)

lock: $(READY) ## resolve the dependencies anew, with hashes and without addresses (needs uv)
	uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --python-version 3.11 --extra embedded --group dev pyproject.toml -o requirements.lock > /dev/null

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Muster needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV)"
	@$(RUN) -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(RUN) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)
