# Everything a developer runs. `make` alone prints the list.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# LOCK= installs the newest versions that there are.
LOCK ?= requirements.lock
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup lock test test-browser test-soak soak fuzz lint format docs docs-serve demo study wheel results bench clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s  %s\n", $$1, $$2}' Makefile

setup: $(READY) ## make .venv and install the package with its tools

$(READY): pyproject.toml constraints.txt requirements.lock
	@test -x $(BIN)/pip || { echo "setup: making .venv"; $(PYTHON) -m venv .venv; }
	@echo "setup: installing the package and its tools (minutes, the first time)"
	@$(if $(LOCK),$(PIP) install --no-deps --require-hashes -r $(LOCK))
	@$(PIP) install $(if $(LOCK),--no-build-isolation) -c constraints.txt -e '.[dev]'
	@touch $@
	@echo "setup: done"

# What torch is built for differs from machine to machine, and so do its hashes and what it brings.
lock: $(READY) ## renew requirements.lock: what everyone installs, by version and hash
	@mkdir -p build
	$(BIN)/python -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev \
		--generate-hashes --no-annotate --no-header --constraints constraints.txt \
		--output-file build/all.lock pyproject.toml >build/lock.log
	@echo "# Made by \`make lock\`: all that developers and CI install but torch, with its hashes." \
		>requirements.lock
	@awk '/^[^ ]/ {ours = !/^(torch==|triton==|nvidia-|cuda-)/} ours' build/all.lock >>requirements.lock

# What is known of trainings is for `make study` alone: tests and the demo do their own.
unexport FOVEAPOOL_KNOWN

# Two workers with one thread each: more threads than cores only get in each other's way.
test: export OMP_NUM_THREADS := 1
test: export MKL_NUM_THREADS := 1
test: $(READY) ## run the tests and the examples in docstrings; PYTEST_OPTIONS="--cov" counts lines
	$(BIN)/python -m pytest -n 2 $(PYTEST_OPTIONS)

# What is not installed is an error here, not a reason to skip; screenshots go to build/browser.
test-browser: export FOVEAPOOL_BROWSER := required
test-browser: $(READY) ## open the report page in Chromium (.ci/install-browser brings it on Debian)
	$(BIN)/python -m pytest -m browser tests/browser

# Kills, hostile files and clusters: what takes too long for every change.
test-soak: $(READY) ## run the tests that take minutes, in their short form
	$(BIN)/python -m pytest -m soak

soak: export FOVEAPOOL_SOAK := 1
soak: $(READY) ## the same for as long as it takes
	$(BIN)/python -m pytest -m soak

# Another SEED damages them in another way.
fuzz: export FILES ?= 50000
fuzz: export SEED ?= $(shell date +%s)
fuzz: $(READY) ## damage FILES files of all kinds that are read, and read them
	$(BIN)/python -m pytest -m soak tests/fuzz

lint: $(READY) ## check style, layout and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src

format: $(READY) ## mend style and layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Material for MkDocs tells of other products above each build.
docs docs-serve: export NO_MKDOCS_2_WARNING := 1
docs: $(READY) ## build the documentation site into build/site, and check its links
	$(BIN)/python -m mkdocs build --quiet --strict
	$(BIN)/python .ci/site.py build/site

docs-serve: $(READY) ## show the documentation site in a browser while it is written
	$(BIN)/python -m mkdocs serve

demo: $(READY) ## the whole experiment on street digits in a few minutes, into runs
	$(BIN)/foveapool demo

study: $(READY) ## do a study, such as STUDY=forms-cnn, and keep its trainings in results/
	$(BIN)/foveapool study $(STUDY) --known results/trainings.jsonl.gz

wheel: $(READY) ## build the wheel and import it from an empty environment
	.ci/check-wheel

results: $(READY) ## fill the tables and draw the figures of README and docs again from results/
	$(BIN)/python benchmarks/figures.py

bench: $(READY) ## measure the fit, its passes and the forward pass
	$(BIN)/python benchmarks/fit.py peers gram growth
	$(BIN)/python benchmarks/passes.py
	$(BIN)/python benchmarks/forward.py

clean: ## remove builds and caches; .venv, runs and results stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +
