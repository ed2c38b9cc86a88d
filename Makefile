# The first run of a target creates .venv and installs the package with the versions of constraints.txt. Later runs find
# it ready, until pyproject.toml or constraints.txt change.

PYTHON ?= python3
BIN := .venv/bin
SETUP_INPUTS := pyproject.toml constraints.txt
# Quiet about warnings, not about errors.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

# A worker that has nothing left takes tests from another one.
PYTEST := $(BIN)/python -m pytest -q
SHARED := -n auto --dist worksteal

.PHONY: help demo fast test gpu check clean
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.package ## Train on a few labels, on the CPU, and write a report: minutes, no download
	@$(BIN)/epass demo

fast: .venv/.dev ## The answer to a pull request in minutes: check, then the tests that are neither slow nor need more
	@$(MAKE) --no-print-directory check
	@$(PYTEST) $(SHARED) -m "not slow and not distributed and not browser and not gpu"

test: .venv/.dev ## Everything that must hold before a change goes in: check, then the whole test suite
	@$(MAKE) --no-print-directory check
	@$(PYTEST) $(SHARED)

gpu: .venv/.dev ## The tests that need a CUDA device, on a machine that has one
	@$(PYTEST) -m gpu

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
