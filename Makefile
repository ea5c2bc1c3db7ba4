# Every target creates .venv on first use; only python >= 3.10 and make are needed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# One look for every stored figure, and no font cache inside the throw-away caches below.
export MATPLOTLIBRC := $(CURDIR)/tools/matplotlibrc
export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help demo test lab docs sync bench
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' Makefile

$(READY): settings.ini setup.py
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "isvm needs Python 3.10 or newer")'
	@echo "Installing into .venv (once, a minute or two) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -c 'import matplotlib.font_manager'
	@touch $@

demo: $(READY) ## see the library do its job on data made on the spot
	@python -m isvm

# Compiled code of an older source must never answer a test: numba starts from nothing.
test: $(READY) ## run every notebook and every test
	@cache=$$(mktemp -d); trap 'rm -rf "$$cache"' EXIT; \
	export XDG_CACHE_HOME=$$cache NUMBA_CACHE_DIR=$$cache; \
	nbdev_test; notebooks=$$?; \
	pytest -q tests; tests=$$?; \
	exit $$((notebooks > tests ? notebooks : tests))

lab: $(READY) ## open the notebooks in JupyterLab, each paired with its twin
	@jupyter lab nbs/index.ipynb --ServerApp.root_dir='$(CURDIR)'

docs: $(READY) ## build the site into _docs/
	@python -m tools.docs

sync: $(READY) ## after editing a twin: update notebooks, modules, outputs and README
	@python -m tools.sync

bench: $(READY) ## print the benchmark table
	@python -m isvm.bench
