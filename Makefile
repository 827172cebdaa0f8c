# Set-up is part of every target: a virtual environment in .venv, made once and renewed when pyproject.toml changes.
PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
export DVC_NO_ANALYTICS := 1
export DO_NOT_TRACK := 1

.PHONY: help demo test test-slow e2e repro up bench docs weekly clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed  ## protect the embedded data set and attack the result: a quick audit
	@echo "== Protecting the embedded data set, then attacking the result =="
	$(BIN)/pass-pipeline run --dataset synthetic_motion --method pass_substitution --method transport_substitution \
		--root data/runs/demo --set audit.effort=quick

test: $(VENV)/.installed-dev  ## lint, types, import contracts and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest

test-slow: $(VENV)/.installed-dev  ## the long test: dvc repro of a clone arrives at every committed digest
	$(BIN)/pytest -m slow

e2e: $(VENV)/.installed-dev  ## a week in the life of a lake, with all servers running: up to 20 minutes
	$(BIN)/pytest -n 0 -m slow tests/e2e

repro: $(VENV)/.installed  ## reproduce every versioned result (dvc repro)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/dvc repro

up: $(VENV)/.installed  ## Prefect, a worker, MLflow and the console on this machine
	$(BIN)/pass-pipeline up

bench: $(VENV)/.installed  ## run every benchmark that ends with a RESULT line (frontier.py studies features of yours)
	@for script in $$(grep -l RESULT benchmarks/*.py); do echo "== $$script =="; $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.installed-docs  ## the documentation as a site that opens without a network: build/docs/site/index.html
	$(BIN)/python docs/site/build.py

weekly: $(VENV)/.installed-dev  ## known vulnerabilities of the installed packages, and their licences (docs/licences.md)
	$(BIN)/pip install --quiet --editable '.[dev,weekly]'
	$(BIN)/python docs/site/licences.py
	@mkdir -p build && $(BIN)/pip list --exclude-editable --format freeze | sed 's/+.*//' > build/installed.txt
	$(BIN)/pip-audit --strict --disable-pip --no-deps --requirement build/installed.txt

clean:  ## remove the virtual environment, scratch runs and caches; versioned data stay
	rm -rf $(VENV) data/runs data/published data/docs data/provenance data/.staging data/.cache .mypy_cache .ruff_cache .pytest_cache build *.egg-info

$(VENV)/.installed: pyproject.toml
	@echo "== Installing PASS Pipeline into $(VENV) (a few minutes, about 3 GB) =="
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found: install Python 3.11, or name one with make PYTHON=..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/pip install --quiet --editable '.[docs]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "== Installing what the tests need =="
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@
