# A fresh machine needs Python 3.11 or newer and make; everything else goes into .venv, once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup check test demo
setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bermo needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch .venv/ready

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

demo: setup
	$(BIN)/bermo demo
