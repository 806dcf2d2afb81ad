# The two commands of the README, and what developers use (`make help`). No target but `test` and `bench-quick` needs root.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# An interpreter that ordinary users can run as well: the tests' jobs belong to one.
PYTHON ?= $(shell for python in /usr/bin/python3 python3; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$python && break; done)
WORKERS ?= 10
# The sandbox of the tests takes root; the jobs in it do not.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo "sudo -E")
TEST_VENV := .venv-test
# Frameworks and trackers above the packages of the tests: `make test` does not need them.
FRAMEWORKS_VENV := .venv-frameworks
# The same packages without PyTorch and the peers; what style, types and contracts need is in both.
UNIT_VENV := .venv-unit
DOCS_VENV := .venv-docs
LINT_VENV := $(if $(wildcard $(TEST_VENV)/installed),$(TEST_VENV),$(UNIT_VENV))

# Tests that need no root, no Slurm and no PyTorch, and wait for no process; but those that try every pattern on long lines (2 min).
UNIT ?= tests/house tests/pure tests/checkpoints tests/why/test_spoken.py
UNIT_WITHOUT := --ignore=tests/pure/why/test_patterns.py --ignore=tests/pure/why/test_rule_costs.py

# Simulated runs beside the tests; 0: none. `make simulation` has five times as many.
SEEDS ?= 300
# Tests that failed beside others and may be run once more, alone: docs/drills.md says which, and why.
AGAIN := $(TEST_VENV)/again
SIMULATE = $(if $(filter 0,$(SEEDS)),true,$(TEST_VENV)/bin/python -m tests.simulation --seeds 0..$(SEEDS))
RUN_TESTS = SAFELAUNCH_REQUIRE_SLURM=1 $(SUDO) $(TEST_VENV)/bin/python -m pytest

.PHONY: help demo test test-frameworks unit lint check format bytecode docs drawings deps simulation bench bench-quick audit lock clean

help:  ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

demo: .venv/installed  ## five failures and what becomes of them, on this machine: no Slurm, no root, no PyTorch
	.venv/bin/safelaunch demo

# What is to be installed comes at once, where the interpreter is there already; else `deps` brings it.
test:  ## everything; installs Slurm and the like, which takes root or sudo
	$(MAKE) --no-print-directory $(if $(PYTHON),-j3 $(DOCS_VENV)/installed) deps $(TEST_VENV)/installed
	$(MAKE) --no-print-directory -j2 check bytecode docs
	rm -f $(AGAIN)
	scripts/beside $(SIMULATE) -- env $(RUN_TESTS) -n $(WORKERS) \
		--dist load --maxschedchunk 1 --second-chance=$(AGAIN) $(PYTEST)
	[ ! -s $(AGAIN) ] || { $(RUN_TESTS) -n 0 @$(AGAIN) && sed 's/^/failed beside others, passed alone: /' $(AGAIN); }
	$(TEST_VENV)/bin/python -m benchmarks.history

test-frameworks: $(FRAMEWORKS_VENV)/installed  ## trainings with real frameworks, trackers: long; as root also on a Slurm
	SAFELAUNCH_LONG=1 $(FRAMEWORKS_VENV)/bin/python -m pytest tests/test_callbacks.py tests/frameworks $(PYTEST)

unit: $(UNIT_VENV)/installed  ## the quick tests: no root, no Slurm, no PyTorch
	$(UNIT_VENV)/bin/python -m pytest -n logical -m 'not slurm and not root and not torch' $(UNIT_WITHOUT) $(UNIT)

lint: $(LINT_VENV)/installed  ## style, types and the contracts between the rooms
	$(LINT_VENV)/bin/ruff check .
	$(LINT_VENV)/bin/mypy
	$(LINT_VENV)/bin/lint-imports --no-timings 2>/dev/null || $(LINT_VENV)/bin/lint-imports

check: lint  ## the same as lint

# `ruff format` is not used: it would change most files.
format: $(LINT_VENV)/installed  ## mend what ruff can mend by itself, the order of imports included
	$(LINT_VENV)/bin/ruff check --fix .

# An installation has its bytecode, a checkout has none: each of the hundreds of supervisors that tests start would compile
# all of it (0.15 s of processor time), and each worker all tests with their asserts (5 s), which a collection writes.
bytecode: $(TEST_VENV)/installed
	$(TEST_VENV)/bin/python -m compileall -q src
	env -u PYTHONDONTWRITEBYTECODE $(TEST_VENV)/bin/python -m pytest --collect-only -qq $(PYTEST) >/dev/null || true

deps:  ## the Debian packages that the tests need, Slurm among them; takes root or sudo
	scripts/install-test-deps

# -W: a broken link, a page that nothing leads to, or a heading that is missing is an error.
docs: $(DOCS_VENV)/installed  ## the pages of docs/ as a site: build/docs/index.html
	$(DOCS_VENV)/bin/sphinx-build --quiet -W --keep-going -c docs . build/docs

drawings:  ## docs/images/*.svg anew from docs/drawings/*.dot; needs Graphviz
	scripts/draw

simulation: SEEDS = 1500
simulation: $(TEST_VENV)/installed  ## simulated runs with faults drawn from their seeds
	$(SIMULATE)

bench: $(TEST_VENV)/installed  ## the figures of docs/benchmarks.md, side by side with the peers
	$(TEST_VENV)/bin/python -m benchmarks

bench-quick: $(TEST_VENV)/installed  ## five ratios to peers in four minutes: a row of benchmarks/history.jsonl
	$(SUDO) $(TEST_VENV)/bin/python -m benchmarks.quick

audit:  ## known vulnerabilities of what the lock names; says so where nobody could be asked
	scripts/audit

lock: $(TEST_VENV)/installed  ## requirements/*.txt anew: the newest releases that pyproject.toml allows, with their hashes
	$(TEST_VENV)/bin/pip install --quiet --disable-pip-version-check uv
	$(TEST_VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-annotate \
		--custom-compile-command 'make lock' --extra dev --extra bench --extra hydra --extra notify --extra stacks \
		--output-file requirements/test.txt pyproject.toml requirements/test.in
	$(TEST_VENV)/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate \
		--custom-compile-command 'make lock' --extra dev --constraint requirements/test.txt \
		--output-file requirements/unit.txt pyproject.toml requirements/unit.in
	$(TEST_VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-annotate \
		--custom-compile-command 'make lock' --output-file requirements/docs.txt requirements/docs.in

.venv/installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 or newer with venv was found; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -e .
	touch $@

# `deps` may have brought the interpreter's venv module: PYTHON is looked for again by the inner make.
$(TEST_VENV)/installed: pyproject.toml requirements/test.txt
	$(MAKE) --no-print-directory test-venv

.PHONY: test-venv
test-venv:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 or newer with venv was found" >&2; exit 1; }
	$(PYTHON) -m venv $(TEST_VENV)
	$(TEST_VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/test.txt
	$(TEST_VENV)/bin/pip install --quiet --disable-pip-version-check 'torch==2.13.0' 'accelerate==1.15.0'
	$(TEST_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(TEST_VENV)/installed

$(FRAMEWORKS_VENV)/installed: $(TEST_VENV)/installed
	$(TEST_VENV)/bin/python -m venv $(FRAMEWORKS_VENV)
	echo "import site; site.addsitedir('$$($(TEST_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
		> $$($(FRAMEWORKS_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth
	$(FRAMEWORKS_VENV)/bin/pip install --quiet --disable-pip-version-check 'transformers==5.24.0' 'lightning==2.6.6' \
		'deepspeed==0.19.8' 'jax==0.10.2' 'orbax-checkpoint==0.12.8' 'ray==2.60.0' \
		'tensorboard==2.21.0' 'wandb==0.31.0' 'mlflow-skinny==3.17.2' 'aim==3.29.1'
	ln -sf $(abspath $(TEST_VENV))/bin/py-spy $(FRAMEWORKS_VENV)/bin/
	touch $@

$(UNIT_VENV)/installed: pyproject.toml requirements/unit.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 or newer with venv was found; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(UNIT_VENV)
	$(UNIT_VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/unit.txt
	$(UNIT_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

$(DOCS_VENV)/installed: requirements/docs.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 or newer with venv was found; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	touch $@

clean:  ## remove what these targets have made
	rm -rf .venv $(TEST_VENV) $(UNIT_VENV) $(FRAMEWORKS_VENV) $(DOCS_VENV) .venv-audit build dist safelaunch-demo
