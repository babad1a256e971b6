PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet
LIBRARY := packages/besselnet
LAB := packages/besselnet-lab
# What the native kernel is built of: an installation follows its changes.
NATIVE := $(LIBRARY)/setup.py $(wildcard $(LIBRARY)/native/*)
REQUIREMENTS := $(LIBRARY)/pyproject.toml $(NATIVE) $(LAB)/pyproject.toml pyproject.toml constraints.txt
# .demo: what the demo needs is installed; .ready: both packages with everything.
DEMO := $(VENV)/.demo
READY := $(VENV)/.ready
EVERYTHING := -e '$(LIBRARY)[demo,data,photos,masks,tensorboard,export,sklearn,hub,parquet,zarr,remote]' -e '$(LAB)[cluster]'
STUDIES := $(addprefix $(LAB)/results/,real-images here segmentation real-images-ablation ablation replication)

.DELETE_ON_ERROR:
.PHONY: demo playground notebooks test test-slow test-oldest test-newest audit wheels release lint bench docs study report clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(DEMO): $(LIBRARY)/pyproject.toml $(NATIVE) constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt -e '$(LIBRARY)[demo]'
	@touch $@

$(READY): $(REQUIREMENTS) | $(BIN)/python
	$(PIP) -c constraints.txt $(EVERYTHING) --group dev --group docs --group examples
	@if command -v gfortran >/dev/null; then \
	  echo "gfortran found: installing escnn, so that the comparisons with it run too"; \
	  $(PIP) -c constraints.txt -e $(LIBRARY) -e '$(LAB)[peers]'; \
	else echo "no gfortran: comparisons with escnn will be skipped"; fi
	@touch $(DEMO) $@

demo: $(DEMO)  ## train on upright digits, test on rotated ones
	$(BIN)/besselnet demo

playground: $(READY)  ## train and export the networks of digits that the playground shows
	$(BIN)/python tools/playground.py

notebooks: $(READY)  ## run the notebooks of examples/ and keep what they show
	$(BIN)/python tools/notebooks.py

lint: $(READY)  ## formatting, lint, types, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell *.md docs/*.md docs/api tools packages/*/src packages/*/README.md
	$(BIN)/mypy

docs: $(READY)  ## the documentation as a site in site/, links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Two processes of one thread each are faster on two cores than one process of two.
test: lint docs  ## every check that fits in a quarter of an hour
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n 2 --dist loadfile

test-slow: $(READY)  ## the long checks
	$(BIN)/pytest -m slow

test-oldest test-newest: test-%:  ## the checks with the oldest / the newest dependencies allowed
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --upgrade pip
	.venv-$*/bin/python -m pip install --quiet -c constraints-$*.txt \
	  -e '$(LIBRARY)[demo,data,photos,masks,tensorboard,export,sklearn]' -e $(LAB) --group dev
	.venv-$*/bin/pytest -m "not slow" -W default  # other versions warn of other things

# In an environment of its own, so that what it needs is not checked with the rest.
audit: $(READY)  ## what is installed against known vulnerabilities; needs a connection
	@$(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip install --quiet pip-audit || \
	  { echo "NOT CHECKED for known vulnerabilities: pip-audit cannot be installed"; exit 3; }
	@.venv-audit/bin/python tools/audit.py \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

wheels: $(READY)  ## both packages as wheels, in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist ./$(LIBRARY) ./$(LAB)

# In environments of their own: one that builds, and one that has nothing but the wheels and what they ask for.
release:  ## build and check wheels and source archives, run the demo from the wheel; uploads nothing
	rm -rf dist .venv-release .venv-wheel
	$(PYTHON) tools/release.py
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --upgrade pip
	.venv-release/bin/python -m pip install --quiet -c constraints.txt --group release
	.venv-release/bin/python -m build --quiet --outdir dist $(LIBRARY)
	.venv-release/bin/python -m build --quiet --outdir dist $(LAB)
	.venv-release/bin/twine check --strict dist/*
	$(PYTHON) tools/release.py dist
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet -c constraints.txt \
	  "$$(echo dist/besselnet-*.whl)[demo]" dist/besselnet_lab-*.whl
	cd .venv-wheel && bin/besselnet-lab --version && bin/besselnet info && bin/besselnet demo --out demo
	@ls -l dist

bench: $(READY)  ## measure speed and memory; results in packages/besselnet-lab/benchmarks/results
	cd $(LAB) && $(abspath $(BIN))/besselnet-lab bench

study: $(READY)  ## what of the paper's study two cores can do; continues where it was stopped
	cd $(LAB) && $(abspath $(BIN))/besselnet-lab study run recipes/here.toml

report: $(READY)  ## the tables and figures of the committed results, in docs/results
	$(BIN)/besselnet-lab study report $(STUDIES) --out docs/results --title "Results"

clean:  ## remove the environment and caches
	rm -f $(LIBRARY)/src/besselnet/kernels/libbesselnet.*
	rm -rf $(VENV) .venv-oldest .venv-newest .venv-audit .venv-release .venv-wheel packages/*/build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
