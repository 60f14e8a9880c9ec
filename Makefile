# Everything this project does from a shell. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin/python
CHECKPOINT ?= checkpoints/small
export HTTP_PORT ?= 8000
export GRPC_PORT ?= 8001
export METRICS_PORT ?= 8002

.PHONY: help env triton engines demo serve test test-unit test-server soak parity bench lint format lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}'
	@echo "  Variables: PYTHON, CHECKPOINT, OMNI_ENGINES, HTTP_PORT, GRPC_PORT, METRICS_PORT, OMNI_ADDRESS (default 127.0.0.1)"

env: $(VENV)/.base ## Create the virtual environment with what serving needs
$(VENV)/.base: requirements/base.lock pyproject.toml deploy/local/bootstrap.py
	@test -n "$(PYTHON)" || { echo "error: Python: none found; allowed: 3.11 or 3.12" >&2; exit 1; }
	@$(PYTHON) deploy/local/bootstrap.py $(VENV) requirements/base.lock
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.base
	@$(PYTHON) deploy/local/bootstrap.py $(VENV) requirements/dev.lock
	@touch $@

triton: $(VENV)/.base ## Fetch Triton Inference Server (a pinned wheel) into .runtime/
	@$(RUN) -m deploy.local install

checkpoints/small: $(VENV)/.base
	@$(RUN) -m build_engines.random_checkpoint small $@

engines: $(VENV)/.base ## Build engines for CHECKPOINT (default: a small random one)
	@if [ "$(CHECKPOINT)" = checkpoints/small ]; then $(MAKE) --no-print-directory checkpoints/small; fi
	@$(RUN) -m build_engines $(CHECKPOINT)

demo: engines triton ## Build, start Triton, ask about text, image, sound and video, stop
	@$(RUN) -m demo

serve: triton ## Keep the server up in the foreground (builds a small model if there is none)
	@test -n "$$OMNI_ENGINES" -o -e engines/current || $(MAKE) --no-print-directory engines
	@$(RUN) -m deploy.local serve

test: $(VENV)/.dev triton ## Run all tests: unit, parity against stored references, and a real server
	@$(RUN) -m pytest tests/unit tests/parity tests/server

test-unit: $(VENV)/.dev ## Run the tests that need no server
	@$(RUN) -m pytest tests/unit

test-server: $(VENV)/.dev triton ## Run the tests against a real tritonserver
	@$(RUN) -m pytest tests/server

soak: $(VENV)/.dev triton ## Run the long tests: cancels, load and leaks over minutes
	@$(RUN) -m pytest tests/soak

parity: $(VENV)/.dev ## Make the references anew with transformers (about 1 GB of packages), compare, run tests/parity
	@$(RUN) tests/parity/reference_env.py .runtime/parity
	@.runtime/parity/bin/python tests/parity/make_references.py --check
	@$(RUN) -m pytest tests/parity

bench: $(VENV)/.dev triton ## Measure the engine alone and through Triton, and preprocess, on the bench-size checkpoint
	@$(RUN) -m benchmarks

lint: $(VENV)/.dev ## Check format, lint and types
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy

format: $(VENV)/.dev ## Format and fix what can be fixed
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/ruff check --fix .

lock: $(VENV)/.dev ## Resolve the lock files anew from pyproject.toml
	@for set in base dev; do \
	  extra=$$([ $$set = dev ] && echo "--extra dev"); \
	  $(VENV)/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	    --no-header --upgrade $$extra pyproject.toml -o requirements/$$set.lock; \
	done

clean: ## Remove everything that was built (environment, Triton, engines, checkpoints)
	@rm -rf $(VENV) .runtime engines checkpoints
