# The two commands for everybody are `make demo` and `make test`; the others are for work on infloop.
# Each makes the environment it needs (`.venv`), so a machine with Python 3.11, git and make is enough.

READY := .venv/.ready
BENCH_READY := .venv-bench/.ready
COMPILE := .venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate

# Hundreds of tests start a Python, and every worker reads all tests: what one compiled serves the next.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-parts test-agents test-browser test-container test-thorough
.PHONY: mutants check lint docs bench console console-check lock clean

help:
	@echo "make demo      watch a loop turn failing tests green"
	@echo "make test      run the tests; ends with what was skipped and the command that brings it"
	@echo "make test-parts  install what tests skip for: Chromium, ripgrep, podman, the agents"
	@echo "make test-agents  drive the real claude and codex against a model of our own"
	@echo "make test-browser  drive the console and the agent's browser in Chromium"
	@echo "make test-container  build the image and look at it from inside, with podman, as root"
	@echo "make test-thorough  tests that repeat themselves, as often as it takes to trust them"
	@echo "make mutants   plant faults in a copy, one at a time, and say which the tests notice"
	@echo "make check     everything that must hold: lint, then the tests"
	@echo "make lint      style, types, layers, documents"
	@echo "make docs      remake the generated parts of the documents"
	@echo "make bench     measure infloop beside its peers"
	@echo "make console   build the web console from its sources; needs Node.js"
	@echo "make console-check  check the console's sources, and that its build is committed; needs Node.js"
	@echo "make screenshots  a picture of every page of the console, in both themes, at two widths"
	@echo "make lock      choose newer versions of the packages infloop is built and tested with"
	@echo "make clean     remove everything that was made"

demo: $(READY)
	@.venv/bin/infloop demo

test: $(READY)
	@tools/test_in_memory.sh .venv/bin/pytest -n auto --dist worksteal -q $(PYTEST)

test-parts:
	@tools/test_parts.sh

test-agents: $(READY)
	@tools/test_parts.sh agents
	@.venv/bin/pytest -q -m agents tests/agents $(PYTEST)

test-browser: $(READY)
	@tools/test_parts.sh browser
	@.venv/bin/pytest -q -m browser tests/attacks tests/console tests/supervisor tests/tools $(PYTEST)

test-container: $(READY)
	@tools/test_parts.sh container
	@.venv/bin/pytest -q -m container tests/project $(PYTEST)

test-thorough: $(READY)
	@THOROUGH=$(or $(THOROUGH),1) .venv/bin/pytest -n auto --dist worksteal -q -m thorough $(PYTEST)

mutants: $(READY)
	@.venv/bin/python tools/mutants.py $(MUTANTS)

check: lint test

lint: $(READY)
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/python tools/gen_builder.py --check
	.venv/bin/python tools/gen_docs.py --check
	.venv/bin/python tools/claims.py --check

docs: $(READY)
	.venv/bin/python tools/gen_builder.py
	.venv/bin/python tools/gen_docs.py
	.venv/bin/python tools/claims.py

bench: $(BENCH_READY)
	@.venv-bench/bin/python bench/run.py $(BENCH)

console: $(READY)
	.venv/bin/python tools/console_types.py
	cd console && npm install --no-save --loglevel=error && npm run build

console-check: $(READY)
	.venv/bin/python tools/console_types.py --check
	cd console && npm install --no-save --loglevel=error && npm run check && npm run build
	@git diff --exit-code --stat -- src/infloop/web/console && \
		test -z "$$(git status --porcelain -- src/infloop/web/console)" || \
		{ echo "the built console is not that of its sources: run make console and commit it" >&2; exit 1; }

screenshots: $(READY)
	@.venv/bin/python tools/screenshots.py $(SCREENSHOTS)

lock: $(READY)
	$(COMPILE) --all-extras --group dev pyproject.toml -o requirements.lock
	$(COMPILE) --group bench pyproject.toml -o requirements-bench.lock
	$(COMPILE) --all-extras --group build -c requirements.lock pyproject.toml -o requirements-image.lock

clean:
	rm -rf .venv .venv-bench .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf dist build bench/out .agents .mutants console/node_modules
	find src tests tools bench -name __pycache__ -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml tools/bootstrap.sh
	@tools/bootstrap.sh .venv requirements.lock

$(BENCH_READY): requirements-bench.lock pyproject.toml tools/bootstrap.sh
	@tools/bootstrap.sh .venv-bench requirements-bench.lock
