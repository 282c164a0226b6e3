# make train   fine-tune the two pocket models (options: make train ARGS="--seats 1")
# make test    run the tests                   (options: make test ARGS="-m slow")
# make faults  kill training processes and damage their files, and count what is lost (docs/reliability.md)
# make lint    ruff and mypy
# make interop the game in other people's libraries (docs/interop.md); RLlib in an environment of its own
# Tests run on one thread: their tensors are too small for more.
# Each makes .venv and installs when pyproject.toml has changed since the last time.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
RLLIB ?= .venv-rllib
BIN := $(VENV)/bin

.PHONY: train test faults lint interop

train: $(VENV)/.installed-test
	$(BIN)/cory train $(ARGS)

test: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(ARGS)

faults: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m faults tests/faults $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

interop: $(VENV)/.installed-interop,test $(RLLIB)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m interop tests/interop $(ARGS)
	OMP_NUM_THREADS=1 $(RLLIB)/bin/python -m pytest -m interop tests/interop/test_rllib.py $(ARGS)

$(RLLIB)/.installed: examples/setup_rllib.sh
	VENV=$(RLLIB) PYTHON=$(PYTHON) sh $<
	touch $@

$(VENV)/.installed-%: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --editable '.[$*]'
	touch $@
