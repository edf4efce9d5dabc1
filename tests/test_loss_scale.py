"""Loss scalers for loops of one's own, and the formats' table."""

import math
import subprocess
import sys

import numpy as np
import pytest
from where import DEVICE

import ampc
from ampc.amp import DynamicLossScaler, StaticLossScaler
from ampc.formats import formats


def test_by_default_it_shrinks_after_a_window_of_overflows_and_never_grows():
    s = DynamicLossScaler(init_scale=8, scale_factor=2, scale_window=3)
    assert s.scale == 8 and s.scale_loss(ampc.tensor(1.5)).item() == 12
    seen = []
    for overflow in (True, True, False, True, True, True, True, True, True, *[False] * 5000, *[True] * 30):
        s.update_scale(overflow)
        seen.append(s.scale)
    assert seen[:9] == [8, 8, 8, 8, 8, 4, 4, 4, 2] and seen[9:5009] == [2.0] * 5000 and s.scale == 1  # its floor


def test_growth_is_the_usual_scheme():
    s = DynamicLossScaler(8, 2, 3, growth=True)
    for overflow, scale in ((True, 4), (False, 4), (False, 4), (False, 8), (False, 8), (True, 4), (True, 2), (True, 1), (True, 1)):
        s.update_scale(overflow)
        assert s.scale == scale
    again = DynamicLossScaler()
    again.load_state_dict(s.state_dict())
    assert repr(again) == repr(s)
    with pytest.raises(ValueError, match="expected a state with"):
        StaticLossScaler().load_state_dict(s.state_dict())


def test_a_manual_step_with_it():
    w = ampc.nn.Parameter(ampc.tensor([1.0, 2.0], device=DEVICE))
    unused = ampc.nn.Parameter(ampc.ones(1, device=DEVICE))
    s = DynamicLossScaler()
    s.scale_loss((w.half() * 1e-7).sum()).backward()
    grads = s.unscale_gradients([w.grad, unused.grad])
    assert grads[1] is None and not s.has_overflow(grads) and np.allclose(grads[0].tolist(), 1e-7, rtol=2e-3) and w.grad[0].item() > 1e-3
    assert s.has_overflow([ampc.ones(3), ampc.tensor([1.0, math.nan])]) and s.has_overflow([ampc.tensor([math.inf]).half()]) and not s.has_overflow([None])
    fixed = StaticLossScaler(4.0)
    fixed.update_scale(True)
    assert fixed.scale == 4.0 and fixed.unscale_gradients([ampc.ones(1)])[0].item() == 0.25


@pytest.mark.parametrize("options, text", [({"init_scale": 0}, "`init_scale` must be a positive finite number, got 0"), ({"scale_factor": 1}, "above 1"),
                                           ({"scale_window": 0}, "1 or more"), ({"init_scale": math.inf}, "finite"), ({"init_scale": "8"}, "'8'")])
def test_what_is_out_of_range(options, text):
    with pytest.raises(ValueError, match=text):
        DynamicLossScaler(**options)


def test_formats_agree_with_numpy_and_finfo():
    rows = {f.name: f for f in formats().rows}
    for name in ("float16", "float32", "float64"):
        info = np.finfo(name)
        assert (rows[name].max, rows[name].smallest_normal, rows[name].smallest_subnormal) == (info.max, info.smallest_normal, info.smallest_subnormal)
        assert rows[name].bytes == np.dtype(name).itemsize
    for name in ("float16", "bfloat16", "float32"):
        info = ampc.finfo(getattr(ampc, name))
        assert (rows[name].max, rows[name].smallest_normal, rows[name].smallest_subnormal) == (info.max, info.tiny, info.smallest_subnormal)
        assert (rows[name].digits, rows[name].hardware) == (info.digits, info.hardware)
    assert (rows["tf32"].exponent, rows["tf32"].fraction, round(rows["float16"].digits, 1), rows["float32"].bias) == (8, 10, 3.3, 127)
    text = str(formats())
    assert "65504" in text and "1.18e-38" in text and "5.96e-08" in text and "<td" in formats()._repr_html_()


def test_the_command_prints_and_draws(tmp_path):
    pytest.importorskip("matplotlib")
    done = subprocess.run([sys.executable, "-m", "ampc.cli", "formats", "--picture", str(tmp_path / "f.png")], capture_output=True, text=True)
    assert done.returncode == 0 and "bfloat16" in done.stdout and (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"
    done = subprocess.run([sys.executable, "-m", "ampc.cli", "formats", "--picture", str(tmp_path / "no" / "f.png")], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("ampc formats: ") and "Traceback" not in done.stderr
