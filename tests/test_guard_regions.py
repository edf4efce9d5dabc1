"""The guard's note on regions of autocast that make nothing faster."""

import warnings

import pytest
from where import DEVICE, ON_GPU

import ampc
from ampc import doctor, nn
from ampc.doctor import guard
from ampc.nn import functional as F


@pytest.fixture(autouse=True)
def observed():
    """As at the beginning of a process."""
    doctor.reports(clear=True)
    guard._State.scaled = None
    guard._State.ignored.clear()
    ampc._C._regions_to_observe(3)
    yield
    doctor.reports(clear=True)
    ampc._C._regions_to_observe(0)


def region_of(*sizes):
    def run():
        with ampc.autocast("cuda" if ON_GPU else "cpu", dtype=ampc.float16 if ON_GPU else ampc.bfloat16):
            for m, n, k in sizes:
                ampc.ones(m, k) @ ampc.ones(k, n)
    return run


@pytest.mark.skipif(not ON_GPU and not ampc._C._has_units(ampc.bfloat16), reason="this CPU has no units for bfloat16")
@pytest.mark.parametrize("sizes, says", [([(4, 2, 8), (16, 16, 16)], "largest product in 16 bits of this region is mm 16 x 16 x 16: so small"),
                                         ([(256, 9, 256), (64, 64, 64)], "products like mm 256 x 9 x 256, which leave tiles partly empty"),
                                         ([(256, 256, 256), (4, 4, 4)], None), ([], None)])
def test_regions_without_effect(sizes, says):
    if says is None:
        region_of(*sizes)()
        assert doctor.reports() == []
        return
    with pytest.warns(doctor.PerformanceNote, match=says):
        region_of(*sizes)()
    (found,) = doctor.reports()
    assert found.rule == "autocast-without-effect" and found.file == __file__


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU beside the CPU")
@pytest.mark.parametrize("region, where", [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_region_of_the_other_device(region, where):
    """It casts nothing; the scaler is not blamed for what nobody computed in float16, and explain says why."""
    net, x = ampc.nn.Linear(128, 256).to(where), ampc.ones(64, 128, device=where)
    optimizer, scaler = ampc.optim.SGD(net.parameters(), lr=0.1), ampc.amp.GradScaler(where)
    said = rf"of '{region}', and its products ran on '{where}'[^\0]*write torch.autocast\('{where}'"
    with pytest.warns(doctor.PerformanceNote, match=said), ampc.autocast(region, dtype=ampc.float16):
        loss = net(x).square().mean()
    assert loss.dtype is ampc.float32
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert [r.rule for r in doctor.reports()] == ["autocast-without-effect"]
    with ampc.explain() as e, ampc.autocast(region, dtype=ampc.float16):
        net(x)
    (ran,), (product,) = e.ran, e.products
    assert ran.dtype == "float32" and ran.reason == f"the autocast region is of '{region}', this ran on {where}: the inputs' dtype"
    assert product.why == f"it ran in float32: the autocast region is of '{region}'"


def image(channels, size):
    return ampc.randn(8, channels, size, size)


MULTIPLY = {  # and are no product of two matrices alone, with a small layer behind
    "convolution": lambda: nn.Conv2d(16, 16, 3)(image(16, 16)),
    "transposed": lambda: nn.ConvTranspose2d(16, 16, 3, 2)(image(16, 8)),
    "depthwise": lambda: nn.Conv2d(32, 32, 3, groups=32)(image(32, 32)),
    "one dimension": lambda: nn.Conv1d(16, 16, 3)(image(16, 32)[..., 0]),
    "attention": lambda: F.scaled_dot_product_attention(*[image(4, 64)] * 3),
    "recurrent": lambda: nn.LSTM(32, 32)(ampc.randn(20, 16, 32))[0],
    "einsum": lambda: ampc.einsum("bij,bjk->bik", image(1, 64)[:, 0], image(1, 64)[:, 0]),
}


@pytest.mark.skipif(not ON_GPU and not ampc._C._has_units(ampc.bfloat16), reason="this CPU has no units for bfloat16")
@pytest.mark.parametrize("large", MULTIPLY)
def test_regions_of_other_products_have_an_effect(large):
    with ampc.autocast("cuda" if ON_GPU else "cpu", dtype=ampc.float16 if ON_GPU else ampc.bfloat16):
        MULTIPLY[large]()
        nn.Linear(16, 16)(ampc.ones(16, 16))
    assert not [r for r in doctor.reports() if "so small" in r.text]


@pytest.mark.skipif(not ON_GPU and not ampc._C._has_units(ampc.bfloat16), reason="this CPU has no units for bfloat16")
@pytest.mark.skipif(ON_GPU, reason="there it goes by columns")
def test_small_convolutions_are_named():
    with pytest.warns(doctor.PerformanceNote, match="is convolution of 1296 multiplications: so small"), ampc.autocast("cpu", dtype=ampc.bfloat16):
        nn.Conv2d(4, 4, 3)(ampc.ones(1, 4, 5, 5))


@pytest.mark.skipif(not ON_GPU and not ampc._C._has_units(ampc.bfloat16), reason="this CPU has no units for bfloat16")
def test_only_the_first_regions_are_looked_at_and_a_doctor_goes_first():
    with ampc.doctor() as d:
        region_of((4, 4, 4))()
    assert ampc._C._regions_to_observe(None) == 3 and doctor.reports() == [] and d.findings == []
    with pytest.raises(ZeroDivisionError), ampc.autocast(DEVICE):
        1 / 0
    assert ampc._C._regions_to_observe(None) == 2 and ampc._C._watcher() is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            region_of((4, 4, 4))()
        assert ampc._C._regions_to_observe(None) == 1  # what was said is not looked for again
        doctor.reports(clear=True)
        for _ in range(2):
            region_of((4, 4, 4))()
    assert ampc._C._regions_to_observe(None) == 0
