# Everything a person or CI runs. Needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# One more test process than there are cores: while one test waits (for a server, a database, a timeout), another runs.
CORES   := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 1)
WORKERS ?= $(shell echo $$(($(CORES) + 1)))
# Tests start a hundred processes that import the same modules: without bytecode on the disk each of them compiles all.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench docs wheels evidence clean simulate crash

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Sidelight needs Python 3.11 or newer, and '$(PYTHON)' is older: try make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Sidelight and its tools into $(VENV) (a minute or two, once)"
	@$(BIN)/python -m pip install -q -U pip -c constraints.txt
	@$(BIN)/python -m pip install -q -c constraints.txt --build-constraint constraints.txt \
	  -e ".[figures,cluster,service,telemetry]" --group dev
	@$(BIN)/sidelight warm
	@touch $@

demo: $(READY) ## draw a confounded log, learn from it, show what it was worth
	$(BIN)/sidelight demo

test: $(READY) ## run all tests, in parallel
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(READY) ## format, lint, strict types, import layers, public surface
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/surface/test_public_names.py tests/surface/test_notation.py tests/surface/test_import_time.py tests/surface/test_house.py

format: $(READY) ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

simulate: $(READY) ## several servers, clients and a rough world on a seeded scheduler (SEEDS=2000)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),2000) --workers $(CORES)

crash: $(READY) ## every state that a power cut may leave of the event log, every sync failing
	$(BIN)/python -m tests.crash

bench: $(READY) ## timings, as ratios measured in one run (ONLY=name for one)
	$(BIN)/python -m benchmarks $(ONLY)

docs: $(READY) ## build the documentation into docs/_build/html
	$(BIN)/sphinx-build -q -W -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

wheels: $(READY) ## build the wheel and try it in clean environments, with no extra and with each
	.ci/wheels $(BIN)/python

evidence: $(READY) ## the long statistical runs (ONLY=name for one); writes docs/evidence.md and its tables
	$(BIN)/python -m benchmarks.evidence $(foreach name,$(ONLY),--only $(name))

clean: ## remove what the other targets made
	rm -rf $(VENV) docs/_build demo results
