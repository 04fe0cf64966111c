# A fresh machine needs Python 3.11 or newer and make; everything else goes into .venv, once.
PYTHON ?= python3
BIN := .venv/bin
MINUTES ?= 60
# Compiled files are kept, whatever the environment says: else every process compiles all anew.
export PYTHONDONTWRITEBYTECODE =
# pip compiles on one core; all of them do it below, but for what hardly anybody imports.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
RARE := /tests?/|/transformers/models/|/torch/(_inductor/[^/]+|testing/_internal)/|/torchgen/
RARE := $(RARE)|/(sqlalchemy|alembic|pygments/lexers|pymdownx|mypy|mypyc)/

.PHONY: setup check test torture fuzz demo docs first-hour
setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bermo needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(PIP) -c constraints.txt torch
	$(PIP) --require-hashes --no-deps -r requirements.lock
	$(PIP) --no-deps -e .
	$(BIN)/python -m compileall -qq -j 0 -x '$(RARE)' .venv/lib || true # some packages hold files of other Pythons
	touch .venv/ready

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

# Kills, failing disks and damaged files for every kind of command: make torture MINUTES=10
torture: setup
	$(BIN)/python -m tests.torture --minutes $(MINUTES) --out torture.json

# Changed files for every reader: make fuzz MINUTES=10
fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --minutes $(MINUTES) --out fuzz.json

demo: setup
	$(BIN)/bermo demo

# What a new user does first, from a clone to a served model: a new clone and environment in a new folder.
first-hour:
	bash tests/first_hour.sh

docs: setup
	$(BIN)/python scripts/make_tables.py
	$(BIN)/python scripts/make_figures.py
	$(BIN)/python scripts/make_reference.py
	$(BIN)/python scripts/make_site.py
