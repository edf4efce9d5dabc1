# make demo   train a model on handwritten digits in three precisions
# make test   build, install and run every test
# make check  test what differs from the last commit; SINCE=main: from a branch
# make debug  a part of the tests with the core under the address and undefined-behaviour sanitizers, its assertions checked
# make sim    test the GPU backend on its simulator; no GPU needed. SHARE=3: one in three of the tests, drawn
# make ptx    the same with the kernels' PTX, as nvcc compiled it, run by the CPU. SHARE=6: one in six of the tests, drawn
# make levels the same for what depends on the instruction set, under each that this CPU can be held to
# make ways   whether the tests execute the code behind every way through the kernels, by gcov
# make coverage  which lines of C and Python the tests run; fails where tests/never_run.txt is out of date. PART=6: six test files, drawn
# make soak   what takes hours: every layer, shape and machine instead of a part drawn
# Each makes .venv and installs what it needs. PYTHON picks the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
WORKERS ?= 2# processes that share the tests
PYTEST = ../$(BIN)/python -m pytest -c ../pyproject.toml --rootdir . -n $(WORKERS) --dist worksteal

# GPU code takes nvcc minutes. So where no GPU is, it is left out, and where one is, it is for that one alone: AMPC_CUDA=1 compiles all of it,
# as `pip install .` does.
export AMPC_CUDA ?= $(shell nvidia-smi -L > /dev/null 2>&1 && echo native || echo 0)

.PHONY: demo test check debug coverage ways levels sim ptx gpu bench ctest lint clang docs soak clean

$(BIN)/python:
	@$(PYTHON) -c "import sysconfig, os; h = sysconfig.get_path('include'); exit(0 if os.path.exists(h + '/Python.h') else 'ampc: Python.h is not in ' + h + ': install python3-dev (Debian, Ubuntu) or python3-devel (Fedora)')"
	@command -v $(or $(CC),cc) > /dev/null || { echo "ampc: no C compiler ($(or $(CC),cc)): install gcc or clang"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# What building needs.
$(VENV)/tools: $(BIN)/python pyproject.toml tools/build_requirements.py
	$(BIN)/python tools/build_requirements.py
	touch $@

# The stamp is younger than every source it was built from. Objects are kept in build/: only what has changed is compiled again.
SOURCES := setup.py pyproject.toml $(wildcard *_ampc.py ampc_*.py) $(shell find csrc ampc -type f ! -path '*/__pycache__/*' ! -path '*/_libs/*' ! -name '*.so')
$(VENV)/installed: $(VENV)/tools $(SOURCES)
	$(BIN)/python setup.py --quiet build_ext
	$(BIN)/python -m pip install --quiet --no-build-isolation ".[plot,test]"
	touch $@

demo: $(VENV)/installed
	$(BIN)/ampc demo

# From tests/, so that the installed package is tested and not the source folder.
test: $(VENV)/installed
	cd tests && $(PYTEST) $(PYTEST_ARGS) .

SINCE ?= HEAD
check: $(BIN)/python
	$(BIN)/python tools/build_requirements.py test > /dev/null
	$(BIN)/python -m pip install --quiet $(LINTERS)
	$(BIN)/python tools/check.py $(SINCE)

# A set of objects with flags of its own, in a folder of its own; setup.py has the sets.
build = AMPC_CUDA=0 AMPC_BUILD=$(1) $(BIN)/python setup.py --quiet build
JOBS := $(shell nproc 2> /dev/null || echo 2)

# AC_ASSERT states what must hold inside the core; releases leave it out.
DEBUG_SUITES ?= test_autograd.py test_autocast.py test_in_place.py test_aliasing.py test_optim.py test_pending.py test_tensor.py test_windows.py test_robust.py
debug: $(VENV)/installed
	$(call build,debug)
	cd tests && ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$($(or $(CC),cc) -print-file-name=libasan.so) $$($(or $(CC),cc) -print-file-name=libstdc++.so)" PYTHONPATH=../build/debug/lib \
		$(PYTEST) -q --no-header -m 'not slow' $(PYTEST_ARGS) $(DEBUG_SUITES)

# What depends on the instruction set, again under each below the CPU's own, which `make test` has; or under some of them, LEVELS=avx2.
LEVELS ?=
levels: $(VENV)/installed
	cd tests && for cpu in $${LEVELS:-$$(../$(BIN)/python -c "import ampc; print(*ampc._C._machine()['lower_levels'])")}; do \
		echo "AMPC_CPU=$$cpu"; \
		AMPC_CPU=$$cpu $(PYTEST) -q --no-header -m 'not slow' $(PYTEST_ARGS) \
			test_ops.py test_autocast.py test_training.py test_optim.py test_scopes.py || exit 1; done

# The code behind every way of csrc/base/ways.def, counted by gcov while tests/test_machines.py runs.
ways: $(VENV)/installed
	$(BIN)/python tools/coverage_of_ways.py

# The lines that no test runs, compared with tests/never_run.txt. UPDATE=1 writes that file; SEED repeats a draw
# of PART; TESTS=test_ops.py runs only that. MINUTES=3 runs all in pieces: call it again until none is left.
coverage: $(VENV)/installed
	$(BIN)/python -m pip install --quiet coverage==7.*
	$(BIN)/python tools/never_run.py $(if $(PART),--part $(PART)) $(if $(TESTS),--tests $(TESTS)) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(UPDATE),--update)

# The GPU backend without a GPU: the suites on the simulator of tests/cuda_sim, which compiles the same kernels. With SHARE=3 one in three of the
# tests, drawn; AMPC_TEST_SEED repeats a draw.
SHARE ?=
GPU_SUITES := test_cuda.py test_cuda_kernels.py test_cuda_windows.py test_cuda_attention.py test_cuda_capture.py test_cuda_graphs.py test_cuda_graph_step.py test_cuda_contexts.py test_cuda_images.py test_special.py test_composed.py test_linalg.py test_lists.py test_windows.py test_complete.py test_cuda_memory.py test_cuda_training.py test_ops.py test_autograd.py test_autocast.py test_scaler.py test_skipped_steps.py test_optim.py test_nn.py test_recurrent.py test_tensor.py \
	test_training.py test_robust.py test_table.py test_guard.py test_guard_regions.py test_ledger.py test_doctor.py test_doctor_ordinary.py test_doctor_values.py test_explain.py test_policy.py test_bisect.py test_advise.py test_capsule.py \
	test_shadow.py test_keras.py test_loss_scale.py test_trainer.py test_bench.py test_testing.py test_seeds.py test_seeds_guide.py test_selftest.py test_fuzz.py test_opinfo.py test_foreach.py \
	test_corners.py test_events.py test_flop_counter.py test_names.py test_argument_names.py test_mixed_dtypes.py test_new_tensors.py test_nodes.py test_optim_own.py test_out.py test_pending.py test_schedules.py test_utils.py test_values.py \
	test_beside_functional.py test_ctc.py test_distributions.py test_distributions_draws.py test_distributions_ends.py test_distributions_kl.py test_distributions_transforms.py test_func.py test_in_place.py \
	test_aliasing.py test_averages.py test_checkpoint.py test_copies.py test_lazy.py test_library_behaviours.py test_modules.py test_prune.py \
	test_index_expressions.py test_indices.py test_order.py test_parametrize.py test_ranges_and_statistics.py test_signal_windows.py test_soft_entropy.py test_class_entropy.py test_storage.py test_transformer.py
sim: $(VENV)/installed
	cd tests && $(PYTEST) -q --no-header --device sim -m 'not slow' $(PYTEST_ARGS) test_cuda_strict.py # by itself: others fill the tables of plans
	cd tests && $(PYTEST) --device sim -m 'not slow' $(if $(SHARE),--share $(SHARE)) $(PYTEST_ARGS) $(GPU_SUITES)

# The same on nvcc's PTX of the kernels, as tests/cuda_ptx runs it.
ptx: $(VENV)/installed
	cd tests && $(PYTEST) -q --no-header --device ptx $(PYTEST_ARGS) test_ptx.py
	cd tests && $(PYTEST) --device ptx -m 'not slow' $(if $(SHARE),--share $(SHARE)) $(PYTEST_ARGS) test_cuda_strict.py
	cd tests && $(PYTEST) --device ptx -m 'not slow' $(if $(SHARE),--share $(SHARE)) $(PYTEST_ARGS) $(GPU_SUITES)

# The same on the GPU of this machine.
gpu: $(VENV)/installed
	cd tests && ../$(BIN)/python -m pytest -c ../pyproject.toml --rootdir . -q --no-header -m gpu $(PYTEST_ARGS) $(GPU_SUITES)

# The core's own C tests under the address and undefined-behaviour sanitizers, with the objects of `make debug`.
ctest: $(VENV)/tools
	$(call build,debug)
	$(MAKE) -j$(JOBS) -C tests/c

# The core by clang, for any x86-64, 64-bit ARM, macOS and Windows: the plain C ways, which other machines and compilers take.
clang: $(BIN)/python
	$(BIN)/python -m pip install --quiet ziglang numpy
	$(BIN)/python tools/clang.py

LINTERS := ruff==0.17.5 mypy==2.4.1 clang-format==23.1.5 numpy
C_FILES := $(shell find csrc tests/c tests/cuda_sim tests/cuda_null tests/cuda_ptx -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp')
lint:
	$(BIN)/python -m pip install --quiet $(LINTERS)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)

# The pages of docs/ as a site in build/site, warnings being errors.
docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet mkdocs-material==9.* mkdocstrings-python $(filter ruff%,$(LINTERS))
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/installed
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python benchmarks/compare.py

# What takes hours, by hand: all that other runs draw a part of, on the simulator too; longer fuzzing of every
# operator, the whole grid of convolutions, all layers of networks, EXAMPLES drawn shapes
# of each kind, ten million damaged files, coverage of all tests, and the pool under the thread sanitizer.
EXAMPLES ?= 1000000
FILES ?= 10000000# damaged files that `load` is given
soak: $(VENV)/installed
	$(call build,thread)
	$(MAKE) -C tests/c SET=thread
	$(MAKE) test
	$(MAKE) levels
	$(MAKE) coverage
	cd tests && AMPC_EXAMPLES=2000 $(PYTEST) test_robust.py test_convolution_grid.py test_machines.py test_fork.py test_missing_memory.py test_serialization.py test_opinfo.py test_distributed_training.py
	AMPC_EXAMPLES=100 $(MAKE) sim
	$(MAKE) ptx
	cd tests && AMPC_ALL_LAYERS=1 $(PYTEST) test_real_layers.py
	cd tests && AMPC_EXAMPLES=$(EXAMPLES) $(PYTEST) test_shapes.py
	$(BIN)/python -m pip install --quiet torch==2.13.0
	cd tests && ../$(BIN)/python -m fuzz --programs $(EXAMPLES)
	cd tests && ../$(BIN)/python fuzz_load.py $(FILES)

clean:
	rm -rf $(VENV) build demo *.egg-info ampc/_libs ampc/*.so
