# make train      fine-tune the two pocket models                 (options: make train ARGS="--seats 1")
# make test       run the tests, with their coverage              (options: make test ARGS="-m slow")
# make test-fast  run the tests that train nothing: under a minute
# make lint       ruff, mypy, import-linter and codespell
# make interop    run the game in other libraries (docs/interop.md); RLlib in an environment of its own
# make faults     kill training processes and damage their files, and count what is lost (docs/reliability.md)
# make help       print this
# Each makes .venv and installs when pyproject.toml or constraints.txt has changed since the last time.
PYTHON ?= python3
VENV ?= .venv
RLLIB ?= .venv-rllib
ARGS ?=
WORKERS ?= 2
COVERAGE_FLOOR ?= 85
BIN := $(VENV)/bin
# One thread for each worker: the tensors of the tests are too small for more.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --dist worksteal

.PHONY: help train test test-fast coverage lint interop faults

help:
	@sed -n 's/^# //p' Makefile

