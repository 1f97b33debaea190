# Two commands do everything: `make reproduce` and `make test`. Both set up `.venv` first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# where to take torch from; for a machine without a GPU: make TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=

.PHONY: setup check test test-all bench reproduce docs site shipped dist clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt setup.py src/momentum_transformer/backend/cpu/build.py $(wildcard src/momentum_transformer/backend/cpu/native/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(if $(TORCH_INDEX),$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch --index-url $(TORCH_INDEX))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $(READY)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

test-all: setup  # torch.compile cannot trace the shape checks, so its tests run without them
	$(BIN)/pytest -n 2 --dist worksteal --ignore tests/compiled
	MOMENTUM_CHECK_SHAPES=0 $(BIN)/pytest tests/compiled
	$(BIN)/python -m tests.faults

bench: setup
	$(BIN)/python -m momentum_transformer.bench.attention_costs --out results/attention.json
	$(BIN)/python -m momentum_transformer.bench.accuracy --out results/accuracy.json
	$(BIN)/python -m momentum_transformer.bench.training_step --out results/training.json
	$(BIN)/python -m momentum_transformer.bench.limits results/limits.json 2
	$(BIN)/momentum bench --threads 2 --out results/bench.json --plot docs/results/bench.svg
	$(BIN)/momentum bench --family --threads 2 --out results/family.json
	$(BIN)/momentum bench --transformers --out results/transformers.json
	$(BIN)/python -m momentum_transformer.bench.picture_speed --out results/generation.json
	$(BIN)/python -m momentum_transformer.bench.lra_speed --out results/lra.json
	$(BIN)/python -m momentum_transformer.bench.translation_speed --out results/translation.json

reproduce: setup
	$(BIN)/momentum reproduce copy

docs: setup  # what README and docs take from results/
	$(BIN)/python docs/figures/draw.py
	$(BIN)/python docs/figures/animate.py
	$(BIN)/python docs/update.py

site: setup  # the documentation as pages: site/index.html; needs no network, neither here nor when it is read
	$(BIN)/python -m zensical build --strict --clean

shipped: setup  # the trained models that come with the package; what is trained already is carried on
	$(BIN)/python -m momentum_transformer.commands.shipping

dist: setup  # a wheel for this platform, with compiled kernels, and the sources of any
	rm -rf build dist && mkdir build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python -c "from setuptools.build_meta import build_sdist; build_sdist('dist')" > build/sdist.log 2>&1 || { cat build/sdist.log; exit 1; }
	@ls -l dist

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .cache build dist site
