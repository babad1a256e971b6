PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := demo,photos,tensorboard,export,dev

.PHONY: demo test test-slow lint bench clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	@if command -v gfortran >/dev/null; then \
	  echo "gfortran found: installing escnn, so that the comparisons with it run too"; \
	  $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[peers]'; \
	else echo "no gfortran: comparisons with escnn will be skipped"; fi
	@touch $(READY)

demo: $(READY)  ## train on upright digits, test on turned ones
	$(BIN)/besselnet demo

lint: $(READY)  ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint  ## every check that fits in a quarter of an hour
	$(BIN)/pytest -m "not slow"

test-slow: $(READY)  ## the long checks
	$(BIN)/pytest -m slow

bench: $(READY)  ## measure speed and memory; results in benchmarks/results
	$(BIN)/besselnet bench

clean:  ## remove the environment and caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
