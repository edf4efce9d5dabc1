#!/usr/bin/env bash
# Everything that wants a GPU, on a machine that has one and perhaps no network: builds in place, runs the suites and the
# benchmark, and compute-sanitizer over the CUDA tests where it is. Results go to the folder given (default: build/gpu).
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-build/gpu}")
mkdir -p "$out"
python=${PYTHON:-python3}
$python setup.py -q build_ext --inplace >"$out/build.log" 2>&1 || { tail -20 "$out/build.log"; exit 1; }
export PYTHONPATH=$PWD
$python -m ampc info | tee "$out/info.txt"
suites=(tests/test_cuda.py tests/test_cuda_memory.py tests/test_cuda_training.py tests/test_ops.py tests/test_autograd.py
    tests/test_autocast.py tests/test_scaler.py tests/test_optim.py tests/test_nn.py tests/test_tensor.py tests/test_training.py)
$python -c "import hypothesis" 2>/dev/null && suites+=(tests/test_robust.py)
timeout "${SUITE_SECONDS:-280}" $python -m pytest -q -m gpu "${suites[@]}" -p no:cacheprovider >"$out/tests.txt" 2>&1
tests=$?
tail -15 "$out/tests.txt"
timeout "${BENCH_SECONDS:-200}" $python benchmarks/gpu.py --save | tee "$out/benchmark.txt"
cp -r benchmarks/rounds-gpu benchmarks/RESULTS-gpu.md "$out/" 2>/dev/null
if command -v compute-sanitizer >/dev/null; then
    timeout "${CHECK_SECONDS:-90}" compute-sanitizer --tool memcheck $python -m pytest -q -m gpu tests/test_cuda_training.py \
        -p no:cacheprovider >"$out/sanitizer.txt" 2>&1
    tail -5 "$out/sanitizer.txt"
fi
exit $tests
