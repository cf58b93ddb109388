# Every target prepares what it needs: on a fresh clone, python3 and make are enough for `make test`.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup format lint test installation test-kubernetes test-ray ray-tests browser versions check map api dashboard ui ui-types docs screenshots soak bench bench-check measure demo lock release clean

# `make test PYTHON=python3.13` runs in an environment of its own, .venv-python3.13, and leaves .venv alone.
PYTHON   :=
VENV     := .venv$(addprefix -,$(notdir $(PYTHON)))
BIN      := $(VENV)/bin
READY    := $(VENV)/.ready
PINS     := requirements/dev.txt
PYTHONS  := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)
VERSIONS := 3.11 3.12 3.13 3.14
QUICK    := tests/unit tests/architecture
# Two more than cores: system tests wait for leases and other processes, and a core without work is lost time.
WORKERS  := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
UI       := src/tidemill/server/static/ui/index.html
DOCS     := src/tidemill/server/static/docs/index.html

# `make setup UV=false` installs with pip alone.
UV := $(BIN)/python -m uv
# Trust what the system trusts, as pip does: networks with a certificate authority of their own work too.
export UV_SYSTEM_CERTS ?= 1
# Hundreds of tests start processes: without bytecode, each would compile half of the package.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with all pinned requirements (the other targets do it by themselves)

format: $(READY) ## Put the code into its standard form
	$(BIN)/python -m ruff check --fix-only --quiet .
	$(BIN)/python -m ruff format .
	$(BIN)/python -m scripts.ui format

lint: $(READY) ## Check style, types and layers
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -m scripts.page_types
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python -m scripts.ui check

test: $(READY) $(UI) $(DOCS) ## Run the whole suite; narrow it with ARGS="-k reactor", choose a version with PYTHON=python3.13
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=10 --durations-min=10 $(ARGS)

installation: $(READY) ## Run servers and workers under faults and load, and audit them (3 minutes); SEED=7 chooses the faults
	$(BIN)/python -m pytest tests/installation --ignore=tests/installation/test_memory.py $(ARGS)

# A KUBECONFIG of the environment does not count: these tests create and delete pods, so the cluster is named each time.
CLUSTER := $(if $(filter command,$(firstword $(origin KUBECONFIG))),$(KUBECONFIG))

test-kubernetes: $(READY) ## Run the Kubernetes tests against a real kube-apiserver, or a cluster with KUBECONFIG=path
	$(if $(CLUSTER),,$(BIN)/python -m scripts.kube_apiserver)
	TIDEMILL_TEST_KUBERNETES=$(or $(CLUSTER),apiserver) $(BIN)/python -m pytest tests/kubernetes $(ARGS)
	$(if $(CLUSTER),,TIDEMILL_TEST_KUBERNETES=apiserver $(BIN)/python -m pytest tests/contract/test_executors.py -k kubernetes)

browser: $(READY) $(UI) $(DOCS) ## Run the tests of the web UI in a real Chromium; narrow them with ARGS
	$(BIN)/python -m scripts.chromium
	$(BIN)/python -m pytest -n auto --dist loadfile tests/browser --ignore=tests/browser/test_smoothness.py $(ARGS)
	$(BIN)/python -m pytest tests/browser/test_smoothness.py

# Ray's wheel is as big as all others together: it has an environment of its own.
test-ray: ## Run the tests of the Ray executor on a real Ray; narrow them with ARGS
	@$(MAKE) --no-print-directory ray-tests VENV=.venv-ray PINS=requirements/ray.txt

ray-tests: $(READY)
	TIDEMILL_TEST_LAUNCHERS=ray $(BIN)/python -m pytest -n 2 --dist worksteal tests/ray \
	  tests/contract/test_executors.py -k ray $(ARGS)

versions: $(READY) ## Run the quick tests on every other supported version of Python that is installed
	@own=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in $(VERSIONS); do \
	  [ $$version != $$own ] || continue; \
	  for found in python$$version ~/.pyenv/versions/$$version.*/bin/python$$version \
	      ~/.local/share/uv/python/cpython-$$version.*/bin/python$$version; do \
	    $$found -c 'import venv' 2> /dev/null || continue; \
	    $(MAKE) --no-print-directory test PYTHON=$$found ARGS="$(QUICK)" || exit 1; \
	    continue 2; \
	  done; \
	  echo "Python $$version is not installed: the tests do not run on it"; \
	done

check: lint test installation browser test-ray versions ## Do what CI does

map: $(READY) ## Write the pages that come from the code: routes, commands, contracts, Python API, drawings, benchmarks
	$(BIN)/python -m scripts.http_routes
	$(BIN)/python -m scripts.command_reference
	$(BIN)/python -m scripts.contracts
	$(BIN)/python -m scripts.python_reference
	$(BIN)/python -m benchmarks.page

api: $(READY) ## Write what comes from the operations: the Python clients, and the wire that may only grow
	$(BIN)/python -m scripts.blocking_client
	$(BIN)/python -m scripts.wire

measure: $(READY) ## Print the measures of the code next to their aims; of another tree with ARGS=path
	@$(BIN)/python -m scripts.measure $(ARGS)

dashboard: $(READY) ## Write the Grafana dashboard from the table of its panels
	$(BIN)/python -m scripts.grafana_dashboard

ui: $(UI) ## Build the web UI into the package, from which the server serves it

ui-types: $(READY) ## Write the TypeScript types of the API for an editor; `make lint` does it too
	$(BIN)/python -m scripts.ui types

docs: $(DOCS) ## Build the documentation into the package, from which the server serves it at /docs

screenshots: $(READY) $(UI) ## Take the pictures of the web UI that README and documentation show (3 minutes)
	$(BIN)/python -m scripts.screenshots

soak: $(READY) ## Run the long forms of the proofs; longer with SECONDS=600, the same faults with SEED=7
	$(BIN)/python -m pytest -n auto --hypothesis-profile=soak --timeout=0 tests/simulation tests/unit/workflows \
	  tests/service/keys/test_keys_against_reactors.py $(ARGS)
	TIDEMILL_TEST_SOAK_SECONDS=$(or $(SECONDS),60) $(BIN)/python -m pytest -s tests/system/test_killed_nodes.py tests/system/test_workflow_overlap.py \
	  tests/system/test_server_takeover.py $(ARGS)
	TIDEMILL_TEST_SOAK_SECONDS=$(or $(SECONDS),60) $(BIN)/python -m pytest --timeout=0 -k kills tests/system/sources \
	  tests/system/test_net_sources.py $(ARGS)
	TIDEMILL_TEST_SOAK_SECONDS=$(or $(SECONDS),60) $(BIN)/python -m pytest -s tests/installation $(ARGS)

bench: $(READY) ## Run every benchmark and keep the results; 3 minutes with ARGS=--quick; PEERS=1 adds other libraries; STRICT=1 fails on a missed bound
	@$(BIN)/python -m benchmarks $(if $(PEERS),--peers) $(if $(STRICT),--strict) $(ARGS)

bench-check: $(READY) ## Compare ratios with the kept ones; fail on a loss of more than 10 %
	@$(BIN)/python -m benchmarks.check $(ARGS)

demo: $(READY) $(UI) $(DOCS) ## Run the examples, reloaded as you save them; they go on where they last stopped
	@mkdir -p build
	@TIDEMILL_RETENTION=1d $(BIN)/tidemill dev examples --store sqlite:///build/demo.db --pool warehouse=1 $(ARGS)

lock: $(READY) ## Pin the requirements of pyproject.toml; newest versions with ARGS=--upgrade
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet \
	  --output-file requirements/dev.txt $(ARGS)
	$(UV) pip compile pyproject.toml --group dev --extra ray --constraint requirements/dev.txt --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" --quiet --output-file requirements/ray.txt $(ARGS)

# Its links name the repository, and a token in TWINE_PASSWORD uploads it: see scripts/release.py.
release: export RELEASE_REPOSITORY := $(REPOSITORY)
release: $(READY) $(UI) $(DOCS) ## Build, check and tag the version of this commit: make release REPOSITORY=https://host/owner/name
	$(BIN)/python -m scripts.release

clean: ## Remove everything that can be made again
	rm -rf .venv .venv-* build dist ui/node_modules src/tidemill/server/static/ui src/tidemill/server/static/docs ui/src/api/schema.d.ts .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(DOCS): export NO_MKDOCS_2_WARNING := 1
# The site has a map of the modules: it changes with their first sentences only, so few changes of code build it again.
MAP := build/code-map.md
$(MAP): $(shell find src/tidemill -name '*.py') | $(READY)
	@$(BIN)/python -m scripts.code_map $@

$(DOCS): $(MAP) mkdocs.yml CHANGELOG.md CONTRIBUTING.md SECURITY.md ui/src/design/tokens.css $(shell find docs scripts/docs_site -name '*.*' -type f -not -name '*.pyc') | $(READY)
	@echo "Building the documentation"
	@$(BIN)/python -m mkdocs build --strict --quiet

# Neither is built anew because the environment is: `make versions` has one per version of Python.
$(UI): $(wildcard ui/*.*) $(shell find ui/src ui/public -type f) | $(READY)
	@echo "Building the web UI"
	@$(BIN)/python -m scripts.ui build

# The environment is always made afresh, so what it holds is what the pins say and nothing else.
$(READY): pyproject.toml $(PINS)
	@found=; for name in $(PYTHONS); do \
	  if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then found=$$name; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  name=$(firstword $(PYTHONS)); \
	  echo "Tidemill needs Python 3.11 or newer, and $$name here is: $$($$name --version 2>&1)" >&2; exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$($$found --version)"; \
	$$found -m venv --clear $(VENV)
	@{ $(INSTALL_WITH_UV); } || { echo "Without uv: installing with pip"; $(INSTALL_WITH_PIP); }
	@$(BIN)/python -m compileall -q src
	@touch $@

# uv comes by the pins too: its lines of the list are a list of their own.
INSTALL_WITH_UV = \
	sed -n '/^uv==/,/ via/p' $(PINS) > $(VENV)/uv.txt && \
	$(PIP_INSTALL) --require-hashes --requirement $(VENV)/uv.txt && \
	$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes $(PINS) && \
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .

INSTALL_WITH_PIP = \
	$(PIP_INSTALL) --require-hashes --requirement $(PINS) && \
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .

PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
