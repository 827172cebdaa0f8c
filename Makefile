# Set-up is part of every target: a virtual environment in .venv, made once and renewed when pyproject.toml changes.
PYTHON ?= $(shell command -v python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
export DVC_NO_ANALYTICS := 1
export DO_NOT_TRACK := 1

.PHONY: help demo test test-slow repro ui bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

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

repro: $(VENV)/.installed  ## reproduce every versioned result (dvc repro)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/dvc repro

ui: $(VENV)/.installed  ## Prefect and MLflow user interfaces on this machine
	$(BIN)/pass-pipeline ui

bench: $(VENV)/.installed  ## run every benchmark that ends with a RESULT line (frontier.py studies features of yours)
	@for script in $$(grep -l RESULT benchmarks/*.py); do echo "== $$script =="; $(BIN)/python $$script || exit 1; done

clean:  ## remove the virtual environment, scratch runs and caches; versioned data stay
	rm -rf $(VENV) data/runs data/published data/docs data/provenance data/.staging data/.cache .mypy_cache .ruff_cache .pytest_cache build *.egg-info

$(VENV)/.installed: pyproject.toml
	@echo "== Installing PASS Pipeline into $(VENV) (a few minutes, about 3 GB) =="
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found: install Python 3.11, or name one with make PYTHON=..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "== Installing what the tests need =="
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@
