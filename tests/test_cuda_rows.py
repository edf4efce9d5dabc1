"""Copies that turn, sums, positions, running sums and sorts of a GPU, at sizes that take several tiles and leave odd tails. See test_cuda_kernels.py."""

import itertools

import numpy as np
import pytest
from gpu_measures import COUNTS_BYTES, bytes_of, drawn, launches
from where import ON_GPU

import ampc

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs --device sim, ptx or cuda")
BYTES = pytest.mark.skipif(not COUNTS_BYTES, reason="--device ptx counts bytes")


# -- copies that turn -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.float32, ampc.int64, ampc.bool, ampc.float64, ampc.int16], ids=str)
@pytest.mark.parametrize("shape", [(130, 66), (67, 129), (3, 70, 72), (2, 3, 65, 33), (8, 3, 9, 10), (7, 200), (8, 8)], ids=str)
def test_copies_in_every_order(shape, dtype):
    """Of whole tiles and their edges, of even and odd sizes; from and to addresses that are not those of two elements."""
    x = (ampc.randn(*shape) * 9).to(dtype)
    odd = ampc.cat([x.reshape(-1)[:1], x.reshape(-1)])[1:].reshape(x.shape)
    for order in itertools.permutations(range(len(shape))):
        want = x.numpy(force=True).transpose(order)
        turned = x.permute(order)
        assert np.array_equal(turned.contiguous().numpy(force=True), want)
        assert np.array_equal(odd.permute(order).contiguous().numpy(force=True), want)
        into = ampc.zeros((2, *turned.shape[:-1], turned.shape[-1] + 1), dtype=dtype)
        into[1, ..., 1:].copy_(turned)
        assert np.array_equal(into[1, ..., 1:].numpy(force=True), want) and not into[0].any().item() and not into[1, ..., 0].any().item()


def test_copies_that_turn_keep_every_bit():
    for whole, part in ((ampc.int16, ampc.float16), (ampc.int16, ampc.bfloat16), (ampc.int32, ampc.float32)):
        bits = ampc.randint(-2**15, 2**15, (90, 70)).to(whole)
        assert np.array_equal(bits.view(part).t().contiguous().view(whole).numpy(force=True), bits.numpy(force=True).T)


@BYTES
@pytest.mark.parametrize(("shape", "order"), [((256, 192), (1, 0)), ((2, 64, 3, 64), (0, 3, 1, 2)), ((4, 8, 16, 64), (3, 1, 0, 2))], ids=str)
def test_bytes_of_copies_that_turn(shape, order):
    x = drawn(*shape, dtype=ampc.float16)
    assert launches(lambda: x.permute(order).contiguous())[0] == 1
    assert bytes_of(lambda: x.permute(order).contiguous()) <= 2.01 * x.nbytes
