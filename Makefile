# `make run` needs nothing but Python 3.11 or newer; `make help` lists the targets.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
            $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# uv installs in a fraction of pip's time, the same files with the same hashes; `make run UV=` takes pip.
UV     ?= $(shell command -v uv 2>/dev/null)
INSTALL := $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(PIP) install --quiet)
ARGS   ?=
WORKERS ?= 3

# What was read of a module is kept: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run test test-long test-pythons lint bench docs pictures dist sbom lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

run: $(VENV)/.installed  ## serve the forest trained on Adult on http://127.0.0.1:8000 (ARGS="--port 9000" adds flags)
	@$(BIN)/oubli serve --data examples/adult.csv.gz --target income $(ARGS)

# Three workers on two cores: tests that wait for servers and disks leave a third of two workers' time unused.
test: lint  ## ruff, mypy and the ordinary tests: minutes, and nothing but Python is needed
	$(BIN)/python -m tests.kernels
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0 $(ARGS)

test-long: $(VENV)/.installed-dev  ## the long tests: hours, with a browser, PostgreSQL and Prometheus, see tests/tiers.py (ARGS="--seconds 1800 --rotate" runs a share)
	$(BIN)/python -m pytest -m long -x --timeout 3600 $(ARGS)

test-pythons: $(VENV)/.installed-dev  ## the unit tests on each Python from 3.11 to 3.14 that is found (ARGS="3.12 3.14" names some)
	$(BIN)/python -m tests.pythons $(ARGS)

lint: $(VENV)/.installed-dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed-benchmarks  ## the benchmarks that fill benchmarks/results (ARGS="--data DIR" says where the data sets are)
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.installed-dev  ## write the generated parts of docs/ and build the site in build/site
	$(BIN)/python docs/scripts/reference.py
	$(BIN)/python docs/scripts/figures.py
	$(BIN)/mkdocs build --strict $(ARGS)

pictures: $(VENV)/.installed-dev  ## take pictures of the console in Chromium, into build/screenshots and docs/images
	$(BIN)/python docs/scripts/screenshots.py --readme $(ARGS)

dist: $(VENV)/.installed-dev  ## build the wheel and the source distribution into dist/ and check them
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/twine check --strict dist/*

sbom: $(VENV)/.installed-dev  ## write a bill of materials of an installation, in CycloneDX's form, into build/sbom.json
	rm -rf build/installation
	$(PYTHON) -m venv --without-pip build/installation
	$(PIP) --python build/installation install --quiet --require-hashes --requirement requirements.lock
	$(PIP) --python build/installation install --quiet --no-deps --no-build-isolation .
	$(BIN)/cyclonedx-py environment build/installation --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json

# Exact versions with the hashes of all files of a release, without the address of any package index. Run with Python 3.11,
# the oldest that is supported.
COMPILE := $(BIN)/pip-compile --quiet --strip-extras --no-header --no-annotate --no-emit-options --generate-hashes \
             --allow-unsafe --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
lock: $(VENV)/.installed-dev  ## write the lock files from pyproject.toml
	@# The widest first: its tools may ask for older versions of what the others have as well.
	$(COMPILE) --upgrade --extra dev --extra benchmarks --output-file requirements-benchmarks.lock pyproject.toml
	$(COMPILE) --upgrade --extra dev --constraint requirements-benchmarks.lock --output-file requirements-dev.lock pyproject.toml
	$(COMPILE) --upgrade --extra client --extra postgres --build-deps-for=editable --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml

clean:  ## remove the environment and what tools left behind; data directories stay
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make the second run start at once; a changed lock file or pyproject.toml installs again.
$(VENV)/.installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Oubli needs Python 3.11 or newer: install it, or name it with PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Creating the environment in $(VENV) with $(PYTHON) (once) ..."
	@test -x $(BIN)/python || $(if $(UV),$(UV) venv --quiet --python $(PYTHON),$(PYTHON) -m venv) $(VENV)
	@$(INSTALL) --require-hashes --requirement requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	@echo "Adding the tools for development ..."
	@$(INSTALL) --require-hashes --requirement requirements-dev.lock
	@touch $@

$(VENV)/.installed-benchmarks: requirements-benchmarks.lock $(VENV)/.installed-dev
	@echo "Adding what the benchmarks compare with ..."
	@$(INSTALL) --require-hashes --requirement requirements-benchmarks.lock
	@touch $@
