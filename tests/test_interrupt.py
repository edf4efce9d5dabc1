"""Ctrl-C in long operators, and sums that do not depend on threads."""

import os
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


def run(code):
    env = {**os.environ, "PYTHONPATH": str(Path(ampc.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ctrl_c_is_not_lost_in_a_checkpoint():
    """What a checkpoint keeps is let go of in the middle of backward, where nothing may run that swallows exceptions, as __del__ does."""
    assert run("""
    import ampc, signal, time
    from ampc.utils.checkpoint import checkpoint
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    model = ampc.nn.Sequential(*[ampc.nn.Sequential(ampc.nn.Linear(256, 256), ampc.nn.GELU()) for _ in range(4)])
    x, lost = ampc.randn(256, 256), 0
    for trial in range(30):
        start = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.02 + 0.0037 * trial)
        try:
            while time.monotonic() - start < 1:
                checkpoint(model, x, use_reentrant=False).sum().backward()
            lost += 1
        except KeyboardInterrupt:
            pass
    print(lost)
    """).split() == ["0"]


def test_interrupted_backward_can_be_repeated():
    """Gradients after an interrupted backward and zero_grad are those of a first one."""
    assert run("""
    import ampc, signal, time
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    w = [ampc.randn(1000, 1000, requires_grad=True) for _ in range(12)]
    def loss():
        x = ampc.ones(1000, 1000)
        for one in w:
            x = (x @ one).tanh()
        return x.sum()
    def grads():
        for one in w:
            one.grad = None
        loss().backward()
        return [one.grad.clone() for one in w]
    want = grads()
    stops = 0
    for delay in (0.05, 0.1, 0.15, 0.2, 0.3):
        out = loss()
        for one in w:
            one.grad = None
        begin = time.perf_counter()
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            while True:
                out.backward(retain_graph=True)
        except KeyboardInterrupt:
            stops += time.perf_counter() - begin < delay + 1
        assert all(a.equal(b) for a, b in zip(grads(), want))
    print(stops)
    """) == "5\n"


@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_interrupted_first_step_is_whole_or_not_begun(optimizer):
    """Parameters are updated with all of their state, or not at all; training goes on from there."""
    assert run(f"""
    import ampc, signal
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    n, stopped = 1 << 22, 0
    for delay in (0.001, 0.02, 0.05, 0.08, 0.06, 0.055, 0.052):
        p = [ampc.zeros(n, requires_grad=True) for _ in range(14)]
        for one in p:
            one.grad = ampc.ones(n)
        opt = ampc.optim.{optimizer}(p, lr=0.5{", momentum=0.9" if optimizer == "SGD" else ""})
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            opt.step()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            stopped += 1
        updated = [one[0].item() != 0 for one in p]
        for one, did in zip(p, updated):
            state = opt.state.get(one, {{}})
            assert one.eq(one[0]).all().item(), "half a parameter"
            if "{optimizer}" == "Adam":
                assert float(state.get("step", 0)) == did and (not did or state["exp_avg"].eq(state["exp_avg"][0]).all().item())
            else:
                assert (state.get("momentum_buffer") is not None) == did
        opt.step()
        step = (0.95, 0.5) if "{optimizer}" == "SGD" else (0.5, 0.5)
        for one, did in zip(p, updated):
            assert abs(one[-1].item() + (0.5 + step[0] if did else 0.5)) < 1e-4, (one[-1].item(), did)
    assert stopped > 0, "no step was interrupted"
    print("ok")
    """) == "ok\n"


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
