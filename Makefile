# Set-up is repeated only when a list of requirements changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: setup optional run test gpu-check lint lab notebooks clean

setup: $(READY)

$(READY): requirements.txt requirements-cpu.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m helpers install
	@touch $(READY)

# Each for itself: reasoning-gym compiles C. What cannot be installed has its tests skipped, which say so.
optional: $(READY)
	@for package in $$(grep -v '^#' requirements-optional.txt); do \
		$(BIN)/pip install --quiet --no-warn-conflicts $$package || echo "$$package could not be installed; its tests will be skipped"; done

run: $(READY)
	@$(BIN)/python -m helpers run --run demo

test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadfile

# On a machine with an NVIDIA GPU: the notebooks on it, then speed and memory side by side (benchmarks/results/gpu.md).
gpu-check: $(READY)
	@CUDA_VISIBLE_DEVICES=$${CUDA_VISIBLE_DEVICES:-0} $(BIN)/python -m pytest tests/gpu
	@CUDA_VISIBLE_DEVICES=$${CUDA_VISIBLE_DEVICES:-0} $(BIN)/python -m benchmarks.gpu

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

lab: $(READY)
	@$(BIN)/jupyter lab notebooks

# The committed outputs are those of the pocket model, so the GPU is hidden; completions kept of before would be reused.
notebooks: $(READY)
	@rm -rf runs/demo/evaluation
	@CUDA_VISIBLE_DEVICES= $(BIN)/python -m helpers run --run demo --in-place
	@CUDA_VISIBLE_DEVICES= $(BIN)/python -m helpers run --run demo --in-place --only 06,07,08

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
