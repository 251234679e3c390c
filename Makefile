# make demo    install into .venv what the demo needs, then compare schedules on two servers
# make test    install the development tools too, then run every check
# make bench   print the benchmark tables
# make validate-gpu   calibrate this machine's first GPU, then predict and run schedules on it
# make clean   remove what the commands above wrote (.venv too)
#
# Another interpreter: make demo PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
OUT := out

.PHONY: demo test bench validate-gpu clean

demo: .venv/.installed
	@mkdir -p $(OUT)
	@$(BIN)/commodious run --schedule harmony-pp --model workloads/models/configs/gpt2-xl.json \
	    --server pcie-4u-4x1080ti --minibatch 64 --plot $(OUT)/timeline.png --trace $(OUT)/trace.json \
	    --html $(OUT)/timeline.html
	@$(BIN)/commodious compare --model workloads/models/configs/gpt2-xl.json \
	    --server pcie-4u-4x1080ti --server dgx-1 --minibatch 64 --plot $(OUT)/compare.png
	@echo
	@echo "Written: $(OUT)/timeline.html (for any browser), $(OUT)/timeline.png, $(OUT)/compare.png" \
	    "and $(OUT)/trace.json (for ui.perfetto.dev)"

test: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -n auto

bench: .venv/.installed
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Under 8 minutes on one GPU: 3 to measure, then ten schedules of each of two networks.
validate-gpu: .venv/.installed
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[validate]'
	@mkdir -p $(OUT)
	$(BIN)/commodious calibrate --device cuda --seconds 180 -o $(OUT)/gpu.toml
	@for net in gpt conv; do \
	    $(BIN)/commodious validate --device cuda --server $(OUT)/gpu.toml --net $$net \
	        --minibatch 32 --plot $(OUT)/gpu-$$net.png --json > $(OUT)/gpu-$$net.json || exit; \
	done
	@echo "Written: $(OUT)/gpu*: server, layer times, measurements, and predicted beside measured"

clean:
	rm -rf .venv $(OUT) build *.egg-info .pytest_cache .hypothesis .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a changed pyproject.toml installs again, nothing else does.

.venv/.created:
	@command -v $(PYTHON) > /dev/null || { \
	    echo "commodious needs Python 3.11 or newer and '$(PYTHON)' was not found:" \
	        "say which one to use, such as make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "commodious needs Python 3.11 or newer and '$(PYTHON)' is" \
	        "$$($(PYTHON) --version 2>&1): say which one to use, such as make PYTHON=python3.12" >&2; \
	    exit 1; }
	@echo "Creating .venv with $$($(PYTHON) --version 2>&1)"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.installed: pyproject.toml | .venv/.created
	@echo "Installing commodious into .venv (about a minute the first time)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e .
	@touch $@

.venv/.installed-dev: pyproject.toml | .venv/.created
	@echo "Installing commodious and its development tools into .venv"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@touch .venv/.installed $@
