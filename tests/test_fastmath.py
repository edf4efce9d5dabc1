"""The vectorised float32 functions against float64, in units in the last place, on every instruction set."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

CODE = """
import numpy as np, math, sys
import ampc
def ulps(got, want):
    want32 = want.astype(np.float32)
    step = np.spacing(np.abs(want32)).astype(np.float64)
    ok = np.isfinite(want32)
    return float((np.abs(got.astype(np.float64) - want) / step)[ok].max())
r = np.random.default_rng(0)
x = np.concatenate([r.uniform(-20, 20, 200000), r.standard_normal(200000), np.logspace(-40, 1.9, 50000), -np.logspace(-40, 1.9, 50000)]).astype(np.float32)
wide = x.astype(np.float64)
t = ampc.tensor(x)
pos = np.concatenate([np.logspace(-44, 38, 200000), r.uniform(0.5, 2, 200000)]).astype(np.float32)
print(ulps(t.exp().numpy(), np.exp(wide)))
print(ulps(ampc.tensor(pos).log().numpy(), np.log(pos.astype(np.float64))))
print(ulps(t.tanh().numpy(), np.tanh(wide)))
print(ulps(t.erf().numpy(), np.vectorize(math.erf)(wide)))
angle = np.concatenate([r.uniform(-3, 3, 100000), r.uniform(-1e6, 1e6, 100000), r.uniform(-1e9, 1e9, 2000)]).astype(np.float32)
print(ulps(ampc.tensor(angle).sin().numpy(), np.sin(angle.astype(np.float64))))
print(ulps(ampc.tensor(angle).cos().numpy(), np.cos(angle.astype(np.float64))))
base = np.concatenate([r.uniform(0.5, 2, 100000), np.exp(r.uniform(-80, 80, 100000))]).astype(np.float32)
power = np.concatenate([r.uniform(-100, 100, 100000), r.uniform(-0.9, 0.9, 100000)]).astype(np.float32)
print(ulps(ampc.pow(ampc.tensor(base), ampc.tensor(power)).numpy(), base.astype(np.float64) ** power))
edge = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 1e-40, -1e-40, 3.4e38, 0.7, 1e7, 1e30, 3, -3, 2.5, 1e6])
one, two = (np.ascontiguousarray(g.ravel()) for g in np.meshgrid(edge, edge))
with np.errstate(all="ignore"):
    want, got = np.power(one, two), ampc.pow(ampc.tensor(one), ampc.tensor(two)).numpy()
    same = (want == got) | (np.isnan(want) & np.isnan(got)) | (np.abs(got - want) <= np.spacing(np.abs(want)))
    same &= (np.signbit(want) == np.signbit(got)) | np.isnan(want)
    trig = [np.allclose(f(edge.astype(np.float64)), g(ampc.tensor(edge)).numpy(), rtol=1e-6, atol=0, equal_nan=True) for f, g in ((np.sin, ampc.sin), (np.cos, ampc.cos))]
print(same.all(), all(trig), np.signbit(ampc.tensor([-0.0]).sin().numpy()[0]))
s = ampc.tensor([float("inf"), float("-inf"), float("nan"), 0.0, 200.0, -200.0, -1.0])
print(repr([f(s).tolist() for f in (ampc.exp, ampc.log, ampc.tanh, ampc.erf)]).replace("inf", "math.inf").replace("nan", "math.nan"))
"""

BOUNDS = {"exp": 2, "log": 2, "tanh": 3, "erf": 2, "sin": 1, "cos": 1, "pow": 1}  # as fastmath.h and trigpow.inc state


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_error_bounds_and_special_values(isa):
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env={**os.environ, "AMPC_CPU": isa})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    errors = dict(zip(BOUNDS, map(float, lines)))
    assert all(errors[k] <= BOUNDS[k] for k in BOUNDS), errors
    assert lines[7] == "True True True"
    exp, log, tanh, erf = eval(lines[8], {"math": math})
    same = lambda a, b: np.array_equal(np.float32(a), np.float32(b), equal_nan=True)  # noqa: E731
    assert same(exp, [math.inf, 0, math.nan, 1, math.inf, 0, math.exp(-1)])
    assert same(log[:4], [math.inf, math.nan, math.nan, -math.inf]) and math.isnan(log[6])
    assert same(tanh[:4], [1, -1, math.nan, 0]) and same(erf[:6], [1, -1, math.nan, 0, 1, -1])
