# make train   fine-tune the two pocket models (options: make train ARGS="--seats 1")
# make test    run the tests                   (options: make test ARGS="-m slow")
# make lint    ruff and mypy
# Each makes .venv and installs when pyproject.toml has changed since the last time.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin

.PHONY: train test lint

train: $(VENV)/.installed-test
	$(BIN)/cory train $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.installed-%: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --editable '.[$*]'
	touch $@
