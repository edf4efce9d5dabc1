"""Ctrl-C in long operators, and sums that do not depend on threads."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import ampc


@pytest.mark.parametrize("work", ["a @ a", "a.double() @ a.double()", "v.sort()", "a.bfloat16() @ a.bfloat16()"])
def test_ctrl_c_raises_and_leaves_the_core_usable(work):
    code = f"""
    import ampc, os, signal, threading, time
    a, v = ampc.randn(3000, 3000), ampc.randn(3_000_000)
    def kick():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=kick).start()
    try:
        while True:
            {work}
    except KeyboardInterrupt:
        print("stopped", (ampc.ones(300, 300) @ ampc.ones(300, 300)).sum().item())
    """
    env = {"PYTHONPATH": str(Path(ampc.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=env, timeout=60)
    assert done.stdout.split() == ["stopped", str(300.0**3)], done.stderr


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float16])
@pytest.mark.parametrize("m,n,k", [(1, 1, 1), (17, 33, 65), (64, 48, 0), (130, 70, 300), (16, 16, 1024)])
def test_products_are_exact_up_to_accumulation_at_any_thread_count(dtype, m, n, k):
    rng = np.random.default_rng(m + n + k)
    x, y = (ampc.tensor(rng.standard_normal(s).astype(np.float32)).to(dtype) for s in ((m, k), (k, n)))
    results, before = [], ampc.get_num_threads()
    try:
        for threads in (1, 2, 3):
            ampc.set_num_threads(threads)
            results += [ampc.mm(x, y, out_dtype=ampc.float32), ampc.mm(x.t().contiguous().t(), y.t().contiguous().t(), out_dtype=ampc.float32)]
    finally:
        ampc.set_num_threads(before)
    a, b = x.double().numpy(), y.double().numpy()
    bound = (4 * k + 8) * 2.0**-24 * (np.abs(a) @ np.abs(b))  # float32 accumulation, four exact parts at most
    assert (np.abs(results[0].double().numpy() - a @ b) <= bound).all()
    assert all(r.equal(results[0]) for r in results)


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16, ampc.float16])
def test_inf_and_nan_pass_through_products(dtype):
    x = ampc.ones(20, 40).to(dtype)
    x[3, 5], x[7, 9] = float("inf"), float("nan")
    out = (x @ ampc.ones(40, 24).to(dtype)).double().numpy()
    assert np.isposinf(out[3]).all() and np.isnan(out[7]).all() and (np.delete(out, [3, 7], 0) == 40).all()
