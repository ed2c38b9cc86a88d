# The first run of a target creates .venv and installs the package with the versions of constraints.txt. Later runs find
# it ready, until pyproject.toml or constraints.txt change.

PYTHON ?= python3
BIN := .venv/bin
SETUP_INPUTS := pyproject.toml constraints.txt
# Quiet about warnings, not about errors.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: help demo test check clean
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.package ## Train on a few labels, on the CPU, and write a report: minutes, no download
	@$(BIN)/epass demo

test: .venv/.dev ## Everything that must hold before a change goes in: check, then the test suite
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest -q -n auto --dist loadfile

check: .venv/.dev ## Lint, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean: ## Remove the environment and every cache
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@echo "Creating .venv"
	@$(PYTHON) -m venv .venv

.venv/.package: $(SETUP_INPUTS) | .venv/bin/python
	@echo "Installing epass into .venv"
	@$(INSTALL) -e .
	@touch $@

.venv/.dev: $(SETUP_INPUTS) | .venv/bin/python
	@echo "Installing epass and its development tools into .venv"
	@$(INSTALL) -e ".[dev]"
	@touch $@ .venv/.package
