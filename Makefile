# relight: everything from a clean clone. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NVRX := .venv-nvrx

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint check pictures prove bench clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "relight: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 2; }
	$(BIN)/pip install --quiet -c constraints.txt hatchling editables
	$(BIN)/pip install --quiet -c constraints.txt --no-build-isolation -e '.[train,console,notify]' \
	  coverage hypothesis import-linter mypy pytest pytest-timeout pytest-xdist ruff obstore flask flask-cors 'moto[s3]' schemathesis \
	  playwright axe-playwright-python
	@touch $@

# NVIDIA's resiliency extension stands beside, in an environment of its own: it brings a pytest plugin along (of anyio), and
# its wheels are tagged for another Python and a newer C library, though all that is used of it is plain Python. Without
# its dependency on torch: neither the analysers nor the checks import it. It is optional, so setup goes on without it.
$(NVRX)/.installed: constraints.txt | $(STAMP)
	@rm -rf $(NVRX); { $(BIN)/python -m venv --without-pip $(NVRX) && \
	  $(BIN)/pip --python $(NVRX)/bin/python install --quiet --retries 1 -c constraints.txt httpx defusedxml nvidia-ml-py && \
	  $(BIN)/pip install --quiet --retries 1 -c constraints.txt --no-deps --only-binary :all: --python-version 3.12 \
	    --platform manylinux_2_39_$$(uname -m) nvidia-resiliency-ext \
	    --target $$($(NVRX)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	  } >$(NVRX).log 2>&1 && mv $(NVRX).log $@ || \
	  { rm -rf $(NVRX); echo "relight: NVRx was not installed (see $(NVRX).log); what is compared with it will be skipped" >&2; }

setup: $(STAMP) $(NVRX)/.installed ## make .venv and install what is needed

demo: $(STAMP) ## 10:40 at 640 nodes, simulated; then a real run is hurt five times and comes back bit-equal; then bad data halts one
	$(BIN)/relight bench real

test: $(STAMP) ## all tests
	$(BIN)/python -m pytest -n 3 --dist loadgroup

lint: $(STAMP) ## ruff, format, mypy, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## lint and the fast tests; about a minute
	$(BIN)/python -m pytest -q -n 2 -m 'not real and not slow'

pictures: $(STAMP) ## the console's page as pictures in build/screenshots, and docs/console.png; needs Chromium
	$(BIN)/python -m pytest -q tests/live/test_console_page.py -k 'drawn or axe'
	cp build/screenshots/console.png docs/console.png

prove: $(STAMP) ## the acceptance, long form; leaves build/proof/*.json
	$(BIN)/relight bench prove

bench: setup ## figures, as ratios against a rival or a limit in the same run
	$(BIN)/relight bench figures

clean: ## what was built, not the virtual environment
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
