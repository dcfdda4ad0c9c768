# make demo, make test and make lint create and use .venv themselves. They need Python 3.11 or newer with its headers, a
# C compiler, make, and a package index.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
COMPILED := pyproject.toml CMakeLists.txt $(wildcard csrc/*.txt csrc/*/*.* csrc/include/*/* cmake/* \
  offload_args/_core/*.[ch] bindings/*.py bindings/*/*.py bindings/*/*.toml bindings/*/*.json)
SANITIZERS := address,undefined thread

C_FILES := $(wildcard csrc/*.[ch] csrc/*/*.[ch] csrc/*/*.inc csrc/include/*/*.h offload_args/_core/*.[ch] tests/*/*.c \
  benchmarks/*.c examples/*/*/*.[ch] csrc/include/*.hpp csrc/include/*/*.hpp examples/*/*/*.cpp)

.PHONY: demo test lint docs notebooks examples linkcheck format ctest sanitize doubles coverage wheel clean

demo: $(VENV)/installed
	$(BIN)/python -m offload_args demo $(ARGS)

# Compiled modules are kept, also where the environment says otherwise: hundreds of children of the tests load them.
# Each process takes one core: threads of OpenBLAS would wait for each other on those that other tests are busy on. Some
# tests wait for something, so there is a process more than cores.
test: $(VENV)/installed
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python -m pytest -n $$(n=$$(nproc); echo $$((n < 8 ? n + 1 : 8))) --dist loadfile \
	  --no-loadscope-reorder $(ARGS)

# mypy reads the package as it is installed: the sources and the generated modules in one folder.
lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)
	$(BIN)/codespell
	$(BIN)/python scripts/check_words.py
	$(BIN)/python scripts/check_floors.py
	$(BIN)/python scripts/check_paths.py
	$(BIN)/python scripts/draw_architecture.py --check
	$(BIN)/pre-commit validate-config
	$(BIN)/python -m bindings --check
	$(BIN)/mypy --cache-dir build/mypy bindings
	rm -rf build/types && mkdir -p build/types
	$(BIN)/python -m bindings emit --out build/types/generated
	cp -r offload_args examples tests/package/static_types.py build/types
	cp build/types/generated/*.py build/types/generated/*.pyi build/types/offload_args
	cd build/types && export MYPY_CACHE_DIR=../mypy && \
	  ../../$(BIN)/mypy --config-file ../../pyproject.toml -p offload_args && \
	  ../../$(BIN)/mypy --config-file ../../pyproject.toml examples/*.py static_types.py

# The site, in build/docs/html; open index.html in a browser.
docs: $(VENV)/installed $(VENV)/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -j auto -d build/docs/doctrees docs build/docs/html
	$(BIN)/python scripts/check_links.py build/docs/html
	$(BIN)/python scripts/check_search.py build/docs/html

notebooks: $(VENV)/installed $(VENV)/notebooks
	$(BIN)/python -m pytest --nbmake docs/notebooks

# Every example, as a user runs it.
examples: $(VENV)/installed
	set -ex; for example in examples/*.py; do for device in host sim:0; do \
	  $(BIN)/python $$example --device $$device; done; done

# The links to other sites, which needs a network.
linkcheck: $(VENV)/installed $(VENV)/docs
	$(BIN)/sphinx-build -b linkcheck --quiet -d build/docs/doctrees docs build/docs/links

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)
	$(BIN)/python scripts/draw_architecture.py

# The C tests, once for each set of sanitizers.
ctest: $(VENV)/dev
	set -e; for sanitizers in $(SANITIZERS); do \
	  scripts/build-sanitized $$sanitizers; \
	  $(BIN)/ctest --test-dir build/sanitized-$${sanitizers%%,*} --output-on-failure --no-tests=error \
	    --parallel $$(nproc); \
	done

# The Python tests of threads, regions and residency, once for each set of sanitizers.
sanitize: $(VENV)/installed $(VENV)/dev
	set -e; for sanitizers in $(SANITIZERS); do scripts/sanitize $$sanitizers $(ARGS); done

# The tests of CUDA devices without a GPU, on doubles of the driver, cuBLAS and NVRTC.
doubles: $(VENV)/installed $(VENV)/dev
	scripts/doubles $(ARGS)

# How much of the package its tests reach, and how much of the core the C tests; ARGS goes to pytest.
coverage: $(VENV)/installed $(VENV)/dev
	scripts/coverage python $(ARGS)
	scripts/coverage c

# The source archive, and from that the wheel, with the tag that its symbols allow: that of this system's glibc, or with
# GLIBC=2.28 one for older systems, compiled by zig.
wheel: $(VENV)/dev
	rm -rf build/wheel
	$(BIN)/python -m build --sdist --outdir build/wheel .
	$(if $(GLIBC),$(PIP) install ziglang)
	$(if $(GLIBC),CC=$(abspath scripts/zig-cc) GLIBC=$(GLIBC)) \
	  $(PIP) wheel --no-deps --wheel-dir build/wheel build/wheel/*.tar.gz
	PATH=$(abspath $(BIN)):$$PATH auditwheel repair --wheel-dir dist build/wheel/*.whl
	cp build/wheel/*.tar.gz dist

# An editable install: edits of Python files count at once, and edits of C and bindings at the next make. pip runs if
# nothing is installed, or pyproject.toml has changed; else the build alone, unless it installs other files than before.
$(VENV)/installed: $(COMPILED) | $(VENV)/build
	$(BIN)/python scripts/install_editable.py $(if $(filter pyproject.toml,$?),--whole) test,demo
	touch $@

$(VENV)/build: pyproject.toml | $(BIN)/python
	$(PIP) install cmake ninja $$($(BIN)/python -c "import tomllib; \
	  print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])")
	touch $@

# The requirements of lint and of the C tests without the package, so that neither waits for a build.
$(VENV)/dev: pyproject.toml | $(BIN)/python
	$(PIP) install $$($(BIN)/python -c "import tomllib; \
	  project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	  print(*project['dependencies'], *project['optional-dependencies']['dev'])")
	touch $@

# The requirements of the site.
$(VENV)/docs: pyproject.toml | $(BIN)/python
	$(PIP) install $$($(BIN)/python -c "import tomllib; \
	  print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	touch $@

# The requirements of the notebooks.
$(VENV)/notebooks: pyproject.toml | $(BIN)/python
	$(PIP) install $$($(BIN)/python -c "import tomllib; \
	  print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['notebooks'])")
	touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "offload_args needs Python 3.11 or newer with its venv module, and none is on PATH:" \
	  "install one, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf build dist $(VENV)
