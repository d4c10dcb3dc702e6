# One word for each thing one does here. `make test` and `make demo` do all the set-up on a fresh machine.

PYTHON  ?= python3
WORKERS ?= 2
VENV    := .venv
PY      := $(VENV)/bin/python
STAMPS  := $(VENV)/stamps
SOURCES := $(shell find engine pyx -name '*.h' -o -name '*.pxd' -o -name '*.pyx' 2>/dev/null)
STUBBED := $(shell find bindings -name '*.pyi' 2>/dev/null | sed 's,^bindings/,,; s,/,.,g; s,\.pyi$$,,')
# Two builds in one tree would write the same files; the second waits for the first.
LOCKED  := flock $(VENV)/build.lock
PIP     := $(PY) -m pip --disable-pip-version-check --quiet

ROTA_BUILD ?= release

export PYTHONUNBUFFERED = 1
export ROTA_BUILD

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: FORCE help build demo test check style types wheel bench models clean distclean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMPS)/debian: tools/debian-packages.sh
	@tools/debian-packages.sh $(PYTHON)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/python: | $(STAMPS)/debian
	@$(PYTHON) -m venv $(VENV) || \
	    { $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	      $(PYTHON) -m pip --python $(PY) install --quiet pip; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/installed: $(STAMPS)/python pyproject.toml
	@echo "installing the build tools, then rota for development"
	@$(PIP) install 'setuptools>=80' 'Cython>=3.1,<4' wheel
	@$(LOCKED) $(PIP) install --no-build-isolation --editable '.[dev]'
	@touch $@

# Newer than the modules whenever ROTA_BUILD is not what they were built with.
$(STAMPS)/flavour: $(STAMPS)/python FORCE
	@echo "$(ROTA_BUILD)" | cmp -s - $@ || echo "$(ROTA_BUILD)" > $@

$(STAMPS)/built: $(STAMPS)/installed $(STAMPS)/flavour setup.py $(SOURCES)
	@$(LOCKED) $(PY) setup.py --quiet build_ext --inplace
	@touch $@

build: $(STAMPS)/built ## Compile the core into bindings/ (ROTA_BUILD=debug, coverage, sanitize, thread)

demo: build ## Run the flights example: real data, five processes, one of them killed
	@$(PY) examples/flights.py

test: build ## Run all tests
	@$(PY) -m pytest -n $(WORKERS)

check: build style types wheel ## Run what a release must pass besides the tests

style: build
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pytest -q -p no:xdist -o addopts= --import-mode=importlib tests/test_layout.py tests/test_tidy.py

types: build
	@$(PY) -m mypy
	@test -z "$(STUBBED)" || $(PY) -m mypy.stubtest --allowlist tests/typing/stubtest.txt --ignore-unused-allowlist --mypy-config-file pyproject.toml $(STUBBED)

wheel: build
	@$(PY) tools/installed.py

bench: build ## Run the benchmarks, with the rivals beside
	@$(PY) -m bench

models: $(STAMPS)/installed ## Search the protocol models at full depth, then each with a guard off
	@$(PY) -m tests.model.run --all --mutations

clean: ## Remove what was built
	@rm -rf build dist bindings/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find bindings -name '*.so' -delete
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	@rm -f $(STAMPS)/built

distclean: clean ## Remove the virtual environment too
	@rm -rf $(VENV) .cache
