"""Windows beside torch's."""

import numpy as np
import pytest

import ampc

NAMES = ["bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser", "nuttall"]


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("M", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("name", NAMES)
def test_windows(torch, name, M, sym):
    kwargs = {"a": [0.5, 0.3, 0.2]} if name == "general_cosine" else {}
    mine = getattr(ampc.signal.windows, name)(M, sym=sym, dtype=ampc.float64, **kwargs)
    theirs = getattr(torch.signal.windows, name)(M, sym=sym, dtype=torch.float64, **kwargs)
    np.testing.assert_allclose(mine.numpy(force=True), theirs.numpy(force=True), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("M", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann", "kaiser"])
def test_windows_of_the_main_namespace(torch, name, M, periodic):
    mine, theirs = (getattr(m, name + "_window")(M, periodic) for m in (ampc, torch))
    assert mine.dtype == ampc.float32
    np.testing.assert_allclose(mine.numpy(force=True), theirs.numpy(force=True), atol=1e-6)
    half = getattr(ampc, name + "_window")(M, periodic=periodic, dtype=ampc.float16, requires_grad=True)
    assert half.dtype == ampc.float16 and half.requires_grad


def test_an_off_centre_exponential(torch):
    for M in (1, 6):
        mine, theirs = (m.signal.windows.exponential(M, center=1.5, tau=2.0, sym=False, dtype=m.float64) for m in (ampc, torch))
        np.testing.assert_allclose(mine.numpy(force=True), theirs.numpy(force=True), rtol=1e-12)


@pytest.mark.parametrize("call", [
    lambda w: w.hann(-1), lambda w: w.hann(3, dtype=ampc.float16), lambda w: w.hann(3, layout="sparse_coo"), lambda w: w.kaiser(3, beta=-1),
    lambda w: w.gaussian(3, std=0), lambda w: w.exponential(3, tau=0), lambda w: w.exponential(3, center=1), lambda w: w.general_cosine(3, a=[])])
def test_windows_that_are_refused(call):
    with pytest.raises(ValueError, match="hann|kaiser|gaussian|exponential|general_cosine"):
        call(ampc.signal.windows)


def test_what_windows_need():
    with pytest.raises(TypeError, match="list of numbers"):
        ampc.signal.windows.general_cosine(3, a=1.0)
    with pytest.raises(RuntimeError, match="floating point"):
        ampc.hann_window(3, dtype=ampc.int64)
    with pytest.raises(RuntimeError, match="0 or more"):
        ampc.hamming_window(-3)
