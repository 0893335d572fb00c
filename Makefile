# make start   read and solve: builds the book, serves it and JupyterLab on this machine
# make book    builds the book into _build/html
# make test    everything CI runs, but for the next
# make test-peers   compares the recurrences with other people's, which it installs (200 MB)

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help start book test test-peers clean

help:
	@sed -n 's/^# make/make/p' Makefile

start: .venv/ready
	$(BIN)/lineage start

book: .venv/ready
	$(BIN)/lineage book

test: .venv/ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lineage build --check
	$(BIN)/pytest -n 2
	$(BIN)/pytest --nbval solutions

test-peers: .venv/ready-peers
	$(BIN)/pytest tests/peers

clean:
	rm -rf .venv _build

.venv/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -r requirements.txt
	$(BIN)/python -m pip install --no-deps -e .
	touch $@

.venv/ready-test: .venv/ready requirements-test.txt
	$(BIN)/python -m pip install -r requirements-test.txt
	touch $@

# mamba-ssm comes as source whose build wants CUDA and whose requirements want a GPU; neither is needed.
.venv/ready-peers: .venv/ready requirements-peers.txt
	grep -v '^mamba-ssm' requirements-peers.txt | $(BIN)/python -m pip install -r /dev/stdin
	grep '^mamba-ssm' requirements-peers.txt | MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE \
	  $(BIN)/python -m pip install --no-deps --no-build-isolation -r /dev/stdin
	touch $@
