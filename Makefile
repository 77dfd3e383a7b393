# Two commands: `make serve` and `make test`; and `make check`, which takes two minutes, while one
# works. They need Python 3.11 or newer and nothing else.

TEMPLATE ?= starter
HOST ?=
PORT ?=
PYTHON ?=
PYTEST_ARGS ?=
# How many processes run the tests side by side; 1 is none but pytest itself. Without it `make check`,
# which computes all the time, has one a core, and `make test`, which waits for servers half of the
# time, two: eight at most, as each may hold models.
PYTEST_WORKERS ?=
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
side_by_side = $(filter-out 1,$(or $(PYTEST_WORKERS),$(shell echo $$(( $(1) < 8 ? $(1) : 8 )))))
CHECK_WORKERS = $(call side_by_side,$(CORES))
TEST_WORKERS = $(call side_by_side,$(CORES) * 2)
# mypy reads what it has not read yet by so many processes.
export MYPY_NUM_WORKERS ?= $(CORES)
# The one server that `make conformance-page` asks; all of them without it.
ONLY ?=
# A checkout of github.com/openresponses/openresponses where `npm install bun zod@3` has been run.
OPENRESPONSES ?= ../openresponses
# The address of an index with another build of torch. Without it a Linux machine that has no NVIDIA
# GPU takes torch from the index of builds for CPUs, which are a tenth of the size, if it can be
# reached; everything else takes it from pip's own.
TORCH_INDEX ?=
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu

# Tests start hundreds of processes. What these import is compiled once, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PYTHONS := $(or $(PYTHON),python3.11 python3.12 python3.13 python3 python3.14)

.PHONY: help serve check test abuse floors conformance conformance-page measured reference docs docs-serve clean

help:
	@echo 'make serve   make the environment, fetch the starter model, serve it on port 8321'
	@echo '             TEMPLATE=echo   another template, by name or path; starter-llama-cpp'
	@echo '             compiles llama.cpp first, once on this machine, which takes minutes'
	@echo '             PORT=9000 HOST=0.0.0.0   where to listen'
	@echo 'make check   format, lint, types, and the unit tests that start no server and load no model;'
	@echo '             needs neither torch nor llama.cpp'
	@echo 'make test    make the environment, fetch the starter model, run ruff, mypy and pytest'
	@echo '             PYTEST_ARGS="-k sse"   what pytest gets, here and in make check'
	@echo '             PYTEST_WORKERS=1   processes that run the tests, here and there; else a few'
	@echo 'make abuse   what abuses a server, and a Ray cluster, for minutes; on a machine that does nothing else'
	@echo 'make floors  the unit tests with the oldest versions that pyproject.toml allows'
	@echo 'make conformance OPENRESPONSES=FOLDER'
	@echo '             run the Open Responses suite, of which FOLDER is a checkout with bun and zod'
	@echo 'make conformance-page  ask this server and others what they can do, and write the page of it;'
	@echo '             OPENRESPONSES=FOLDER   by that suite too; ONLY=llama.cpp   one of them'
	@echo 'make measured  write the pages of conformance and speed anew, from the results'
	@echo 'make reference  write the reference pages and the schema of templates anew, from the code'
	@echo 'make docs    build the site of the documentation, in .artifacts/site; a dead link is an error'
	@echo 'make docs-serve  its pages on port 8000, anew with each change; without llms.txt and Markdown'
	@echo 'make clean   delete the environment and what tools left; models stay'
	@echo
	@echo 'For these:   PYTHON=python3.12   the Python to make the environment with'
	@echo '             TORCH_INDEX=URL     where to get torch; on Linux without an NVIDIA GPU it is'
	@echo '                                 the build for CPUs anyway, if its index can be reached'

# What the template needs: llama.cpp is compiled only for one that names it.
USES_LLAMA_CPP := $(shell grep -ls '^[^\#]*local::llama_cpp' '$(TEMPLATE)' 'templates/$(TEMPLATE).yaml')
USES_TORCH := $(shell grep -ls '^[^\#]*local::torch' '$(TEMPLATE)' 'templates/$(TEMPLATE).yaml')
comma := ,
SERVED := $(if $(USES_LLAMA_CPP),$(if $(USES_TORCH),torch$(comma))llama-cpp,torch)

serve: $(VENV)/.has-$(SERVED)
	@case '$(TEMPLATE)' in \
	  starter) $(BIN)/llama-compat pull starter;; \
	  starter-llama-cpp) $(BIN)/llama-compat pull starter.gguf;; \
	esac
	@exec $(BIN)/llama-compat run '$(TEMPLATE)' $(if $(HOST),--host '$(HOST)') $(if $(PORT),--port '$(PORT)')

# What a change is held against while it is made; `make test` holds it against everything. The code is
# looked at while one core imports the tests, which the others would only wait for.
check: $(VENV)/.has-dev
	@failed=; said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	step() { echo "== $$*"; "$$@" || failed="$$failed '$$*'"; }; \
	{ \
	  step $(BIN)/ruff format --check; \
	  step $(BIN)/ruff check; \
	  step $(BIN)/mypy; \
	  [ -z "$$failed" ]; \
	} > "$$said" 2>&1 & \
	step $(BIN)/python -m pytest tests/unit --light -q $(if $(CHECK_WORKERS),-n $(CHECK_WORKERS)) $(PYTEST_ARGS); \
	wait $$! || failed="$$failed lint"; \
	cat "$$said"; \
	[ -z "$$failed" ]

# Tests of one module share what it starts, so they stay together where several processes run. Their
# order is that of the folders: what takes long comes first, above all what is marked `early`, and no
# process is left alone with it.
SIDE_BY_SIDE = $(if $(TEST_WORKERS),-n $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder)

# Everything runs, whatever fails before it, and pytest's summary is the last word. Of what has real
# servers, browsers and databases in it, something is late now and then on a busy machine: what fails
# is tried once more, and the summary names it (RERUN), since it is a test to be mended all the same.
test: $(VENV)/.has-torch,llama-cpp,dev,abuse
	@failed=; \
	step() { echo "== $$*"; "$$@" || failed="$$failed '$$*'"; }; \
	step $(BIN)/llama-compat pull starter; \
	step $(BIN)/llama-compat pull starter.gguf; \
	step $(BIN)/ruff format --check; \
	step $(BIN)/ruff check; \
	step $(BIN)/mypy; \
	if [ -n "$$failed" ]; then echo "== failed so far:$$failed"; fi; \
	step $(BIN)/python -m pytest -raR --reruns 1 --reruns-delay 2 $(SIDE_BY_SIDE) $(PYTEST_ARGS); \
	[ -z "$$failed" ]

abuse: $(VENV)/.has-torch,llama-cpp,dev,abuse,fuzz
	$(BIN)/python -m pytest tests/abuse tests/integration/test_ray_chaos.py --abuse $(PYTEST_ARGS)

floors: $(VENV)/.has-torch,llama-cpp,dev
	PIP_FIND_LINKS="$$PIP_FIND_LINKS $$($(BIN)/python scripts/llama_cpp_wheel.py)" \
	$(BIN)/python -m tests.floors $(if $(TORCH_INDEX),--torch-index '$(TORCH_INDEX)') $(PYTEST_ARGS)

conformance: $(VENV)/.has-dev
	@$(BIN)/python -m tests.clients.openresponses '$(OPENRESPONSES)' --record tests/clients/results/openresponses.json

# Takes each server by itself, and a quarter of an hour on two cores; what it installs, it keeps.
conformance-page: $(VENV)/.has-torch,llama-cpp,dev,docs
	$(BIN)/llama-compat pull starter
	$(BIN)/llama-compat pull starter.gguf
	$(BIN)/python -m scripts.conformance $(if $(ONLY),--only '$(ONLY)') \
	  $(if $(wildcard $(OPENRESPONSES)),--openresponses '$(OPENRESPONSES)')
	@$(BIN)/python -m scripts.measured

measured: $(VENV)/.has-dev,docs
	@$(BIN)/python -m scripts.measured

reference: $(VENV)/.has-dev
	@$(BIN)/python -m scripts.reference

docs: $(VENV)/.has-docs
	@$(BIN)/python -m scripts.site

docs-serve: $(VENV)/.has-docs
	@$(BIN)/zensical serve

clean:
	rm -rf $(VENV) $(VENV)-floors build dist .artifacts .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The folder that llama.cpp was installed from: another has the same version, compiled in another way,
# which pip takes for what it has already.
LLAMA_CPP_FROM := $(VENV)/.llama-cpp-from

# `.has-EXTRAS` says that the environment has what those extras need, as pinned today.
$(VENV)/.has-%: pyproject.toml constraints.txt scripts/llama_cpp.cmake
	@if ! $(BIN)/python -c '' 2>/dev/null; then \
	  python=; \
	  for each in $(PYTHONS); do \
	    if "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      python=$$each; break; \
	    fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo 'No Python 3.11 or newer among: $(PYTHONS). Install one, or name it: make PYTHON=/path/to/python3.12' >&2; \
	    exit 1; \
	  fi; \
	  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "$$python can't make virtual environments. On Debian and Ubuntu: apt install python3-venv (or python3.12-venv, for the version that it is)" >&2; \
	    exit 1; \
	  fi; \
	  echo "== Making the environment in $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV) || { echo 'That failed. Mend what it says and run make again.' >&2; exit 1; }; \
	fi
	@echo '== Installing llama-compat[$*] into $(VENV); the first time this takes minutes'
	@links=; $(if $(findstring llama-cpp,$*),links="$$($(BIN)/python scripts/llama_cpp_wheel.py)" || exit 1;) \
	if [ -n "$$links" ] && [ "$$links" != "$$(cat $(LLAMA_CPP_FROM) 2>/dev/null)" ]; then \
	  $(BIN)/python -m pip uninstall --disable-pip-version-check -q -y llama_cpp_python || exit 1; \
	fi; \
	index='$(TORCH_INDEX)'; \
	if [ -z "$$index" ] && [ -n '$(findstring torch,$*)' ] && [ "$$(uname -s)" = Linux ] && ! nvidia-smi -L >/dev/null 2>&1; then \
	  if $(BIN)/python -c 'from urllib.request import urlopen; urlopen("$(TORCH_CPU_INDEX)/torch/", timeout=5)' 2>/dev/null; then \
	    index='$(TORCH_CPU_INDEX)'; \
	  else \
	    echo "== No NVIDIA GPU here, but $(TORCH_CPU_INDEX) can't be reached: torch comes from pip's own index, where it may be the large build for CUDA"; \
	  fi; \
	fi; \
	$(BIN)/python -m pip install --disable-pip-version-check --use-pep517 -c constraints.txt $${index:+--extra-index-url "$$index"} $${links:+--find-links "$$links"} -e '.[$*]' || { \
	  echo "pip could not install what is needed; the lines above say why. Check the network and pip's index ($(BIN)/pip config list), then run make again." >&2; \
	  exit 1; \
	}; \
	if [ -n "$$links" ]; then echo "$$links" > $(LLAMA_CPP_FROM); fi
	@touch '$@'
