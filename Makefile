PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
STUDIES := $(addprefix results/,here ablation replication)
EXTRAS := demo,photos,tensorboard,export,cluster,hub,examples,docs,dev

.PHONY: demo test test-slow test-oldest test-newest lint bench docs study report clean help

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

docs: $(READY)  ## the documentation as a site in site/, links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: lint docs  ## every check that fits in a quarter of an hour
	$(BIN)/pytest -m "not slow"

test-slow: $(READY)  ## the long checks
	$(BIN)/pytest -m slow

test-oldest test-newest: test-%:  ## the checks with the oldest / the newest dependencies allowed
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet -c constraints-$*.txt -e '.[demo,photos,tensorboard,export,dev]'
	.venv-$*/bin/pytest -m "not slow" -W default  # other versions warn of other things

bench: $(READY)  ## measure speed and memory; results in benchmarks/results
	$(BIN)/besselnet bench

study: $(READY)  ## what of the paper's study two cores can do; goes on where it was stopped
	$(BIN)/besselnet study run recipes/here.toml

report: $(READY)  ## the tables and figures of the committed results, in docs/results
	$(BIN)/besselnet study report $(STUDIES) --out docs/results --title "What was run here"

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-oldest .venv-newest build dist site .mypy_cache .ruff_cache .pytest_cache
