# Everything a user or a developer runs. `make quickstart` needs Python 3.11 or newer and nothing else; so does `make test`.
PYTHON ?= python3
VENV := .venv
ENGINES := .venv-engines
RAY := .venv-ray
TRAINERS := .venv-trainers
STRANDS := .venv-strands
VERIFIERS := .venv-verifiers
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --no-compile # most of what comes with torch is never imported
OURS := src tests bench tools training examples docs
export OMP_NUM_THREADS ?= 1

.PHONY: quickstart test test-engines test-ray test-trainers train-tiny train-smollm2 lint bench bench-peers mutants kill-storm differential clean

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Rollbook needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip # the one that comes with Python 3.11 takes three times as long to choose versions
	touch $@

$(VENV)/.local: pyproject.toml | $(VENV)/.python
	$(INSTALL) --editable '.[local]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.python
	$(INSTALL) --editable '.[local,parquet,dev]'
	touch $(VENV)/.local $@

quickstart: $(VENV)/.local ## install, fetch a real small model once, run 8 tasks x 4 rollouts on it and show what came out
	$(PY) tools/quickstart.py

lint: $(VENV)/.dev ## formatting, lint, types, room contracts, sizes
	$(VENV)/bin/ruff format --check $(OURS)
	$(VENV)/bin/ruff check $(OURS)
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q -n 2 -p no:cacheprovider tests/architecture
	$(VENV)/bin/pyright --threads 2

test: lint ## everything that CI runs
	$(PY) -m pytest -n 2 --dist loadfile tests

bench: $(VENV)/.dev ## the cost of the layer beside a bare client, memcpy and plain decompression; a table and bench-out/bench.json
	$(PY) -m bench --json bench-out/bench.json

bench-peers: $(VENV)/.dev ## the same rollouts by strands-env and verifiers beside ours; makes an environment of about 600 MB for each, strands-env needs Python 3.12
	$(PY) tools/peers_env.py strands $(STRANDS)
	$(PY) tools/peers_env.py verifiers $(VERIFIERS)
	$(PY) tools/keep_report.py peers -- $(PY) -m bench.peers $(STRANDS)/bin/python $(VERIFIERS)/bin/python --docs docs/benchmarks.md

mutants: $(VENV)/.dev ## take each check out in turn: a named test must turn red
	$(PY) tools/keep_report.py mutants -- $(PY) tools/mutants.py --json

kill-storm: $(VENV)/.dev ## SIGKILL the store's writer, then whole runs, each at 200 random moments
	$(PY) tools/keep_report.py store_storm -- $(PY) -m tests.slow.kill_storm
	$(PY) tools/keep_report.py run_storm -- $(PY) -m tests.slow.run_storm

differential: $(VENV)/.dev ## 2,000 random conversations of each model family against transformers, turn by turn
	$(PY) tools/keep_report.py differential -- $(PY) -m tests.slow.differential

test-engines: $(VENV)/.dev ## llama.cpp's server and vLLM on the CPU with a real model; makes an environment of 3.5 GB for vLLM, takes about ten minutes
	$(PY) tools/engines_env.py $(ENGINES)
	$(PY) tools/keep_report.py engines -- $(PY) -m tests.slow.engines $(ENGINES)/bin/python

test-ray: $(VENV)/.dev ## a storm of faults on a local Ray cluster of two nodes, with a shared folder and with an object store; makes environments of 600 MB, takes about three minutes
	$(PY) tools/ray_env.py $(RAY)
	$(PY) tools/keep_report.py object_storm -- $(PY) -m tests.slow.object_store
	$(PY) tools/keep_report.py ray_storm -- $(RAY)/bin/python -m tests.slow.ray_storm

test-trainers: $(VENV)/.dev ## the real record classes and losses of trainers, from packages and from pinned public source (ROLLBOOK_TRAINER_SOURCES); makes an environment of about 2 GB for each set of versions
	$(PY) tools/trainers_env.py $(TRAINERS)
	$(PY) tools/keep_report.py trainers -- $(PY) -m tests.slow.trainers $(TRAINERS)

train-tiny: $(VENV)/.dev ## train local:tiny on the calculator with three seeds: success must rise by 0.35 on held-out tasks, in 400 CPU seconds a seed
	$(PY) tools/keep_report.py train_tiny -- $(PY) tools/train_examples.py tiny

train-smollm2: $(VENV)/.dev ## train SmolLM2-135M to answer with one digit: its reward must double, in 1,800 CPU seconds
	$(PY) tools/keep_report.py train_smollm2 -- $(PY) tools/train_examples.py smollm2

clean:
	rm -rf $(VENV) $(ENGINES) $(RAY) $(TRAINERS) $(STRANDS) $(VERIFIERS) .venv-moto build dist bench-out .pytest_cache .ruff_cache .hypothesis
