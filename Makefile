# The two commands for everybody are `make demo` and `make test`; the others are for work on infloop.
# Each makes the environment it needs (`.venv`), so a machine with Python 3.11, git and make is enough.

READY := .venv/.ready
BENCH_READY := .venv-bench/.ready
COMPILE := .venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate

# Hundreds of tests start a Python, and every worker reads all tests: what one compiled serves the next.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-agents test-browser test-container test-load check docs bench console lock clean

help:
	@echo "make demo      watch a loop turn failing tests green"
	@echo "make test      run the tests"
	@echo "make test-agents  drive the real claude and codex against a model of our own"
	@echo "make test-browser  the server's pages in a real browser, and a browser inside a fence, as root"
	@echo "make test-container  build the image and look at it from inside, with podman, as root"
	@echo "make test-load  ten thousand webhooks while the server is killed twice"
	@echo "make check     everything that must hold: style, types, layers, documents, tests"
	@echo "make docs      remake the generated parts of the documents"
	@echo "make bench     measure infloop beside its peers"
	@echo "make console   build the web console"
	@echo "make lock      choose newer versions of the packages infloop is built and tested with"
	@echo "make clean     remove everything that was made"

demo: $(READY)
	@.venv/bin/infloop demo

test: $(READY)
	@.venv/bin/pytest -n auto --dist worksteal -q $(PYTEST)

test-agents: $(READY)
	@.venv/bin/pytest -q tests/agents/real_agents.py tests/agents/real_confined.py \
	  tests/agents/real_mcp.py $(PYTEST)

test-browser: $(READY)
	@command -v chromium >/dev/null && command -v chromium-headless-shell >/dev/null || \
	  apt-get install -y -qq --no-install-recommends chromium chromium-headless-shell
	@.venv/bin/pytest -q tests/web/test_browser.py tests/attacks/test_browser_confined.py $(PYTEST)

test-container: $(READY)
	@tools/container_engine.sh
	@INFLOOP_TEST_CONTAINER=1 .venv/bin/pytest -q tests/project/test_container.py $(PYTEST)

test-load: $(READY)
	@INFLOOP_TEST_LOAD=10000 .venv/bin/pytest -q tests/web/test_webhook_load.py $(PYTEST)

check: $(READY)
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/python tools/gen_docs.py --check
	.venv/bin/python tools/claims.py --check
	@$(MAKE) --no-print-directory test

docs: $(READY)
	.venv/bin/python tools/gen_docs.py
	.venv/bin/python tools/claims.py

bench: $(BENCH_READY)
	@.venv-bench/bin/python bench/run.py $(BENCH)

console:
	@test -d console || { echo "there are no console sources yet" >&2; exit 1; }
	cd console && npm ci && npm run build

lock: $(READY)
	$(COMPILE) --all-extras --group dev pyproject.toml -o requirements.lock
	$(COMPILE) --group bench pyproject.toml -o requirements-bench.lock
	$(COMPILE) --all-extras --group build -c requirements.lock pyproject.toml -o requirements-image.lock

clean:
	rm -rf .venv .venv-bench .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf dist build bench/out
	find src tests tools bench -name __pycache__ -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml tools/bootstrap.sh
	@tools/bootstrap.sh .venv requirements.lock

$(BENCH_READY): requirements-bench.lock pyproject.toml tools/bootstrap.sh
	@tools/bootstrap.sh .venv-bench requirements-bench.lock
