"""Twins of the blocks of the fifth document, a framework's guide; see test_seeds.py and docs/seeds.md."""

import math
import time

import numpy as np
import pytest
from where import DEVICE, ON_GPU

import ampc
import ampc as genesis
import ampc as torch
from ampc import nn, optim

HALF = torch.float16
pytestmark = [pytest.mark.usefixtures("switches_back"), pytest.mark.filterwarnings("ignore::ampc.doctor.guard.MisuseWarning"), pytest.mark.filterwarnings("ignore:autocast")]


def test_guide_1_dtypes():
    for dtype, name, size in ((genesis.float32, "float32", 4), (genesis.float16, "float16", 2), (genesis.bfloat16, "bfloat16", 2)):
        assert (dtype.name, dtype.itemsize, dtype.is_floating_point) == (name, size, True) and name in f"{dtype}" and name in str(np.dtype(dtype.numpy_dtype))


def test_guide_2_tensors():
    single = genesis.randn(100, 100, dtype=genesis.float32)
    half, brain = genesis.randn(100, 100, dtype=genesis.float16), genesis.randn(100, 100, dtype=genesis.bfloat16)
    assert [t.nbytes for t in (single, half, brain)] == [single.numel() * 4, half.numel() * 2, brain.numel() * 2]
    assert single.half().dtype is genesis.float16 and half.float().dtype is genesis.float32


def test_guide_3_the_switch():
    genesis.enable_autocast = True
    model, x = nn.Linear(784, 10).to(DEVICE), genesis.randn(32, 784, device=DEVICE)
    outputs = model(x)
    loss = nn.CrossEntropyLoss()(outputs, genesis.randint(0, 10, (32,), device=DEVICE))
    low = genesis.float16 if ON_GPU else genesis.bfloat16
    assert (x.dtype, outputs.dtype, loss.dtype, genesis.enable_autocast) == (genesis.float32, low, genesis.float32, True)
    genesis.enable_autocast = False
    assert model(x).dtype is genesis.float32 and genesis.enable_autocast is False
    with pytest.raises(TypeError, match="must be True or False, got 1"):
        genesis.enable_autocast = 1


def test_guide_4_by_hand():
    model, x = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to(DEVICE), genesis.randn(32, 784, device=DEVICE)
    with genesis.autocast():
        hidden = model[0](x)
        activated = model[1](hidden)
    outputs = model[2](activated)  # 16-bit input, float32 weights, no region: in the widest
    low = genesis.float16 if ON_GPU else genesis.bfloat16
    assert (hidden.dtype, activated.dtype, outputs.dtype) == (low, low, genesis.float32)
    outputs.sum().backward()
    assert {p.grad.dtype for p in model.parameters()} == {genesis.float32}
    with pytest.raises(RuntimeError, match=r"must have the same dtype, got (b?)float16 and float32; cast one of them with .to\(\), or open an autocast"):
        genesis.matmul(activated, model[2].weight.t())


def test_guide_5_a_loop_with_the_switch(world, capsys):
    genesis.enable_autocast = True
    ampc.doctor.reports(clear=True)
    total = 0.0
    world.model.train()
    for i, (x, y) in enumerate(world.batches):
        world.optimizer.zero_grad()
        loss = world.criterion(world.model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(world.model.parameters(), max_norm=1.0)
        world.optimizer.step()
        total += loss.item()
        if i % 100 == 0:
            print(f"Batch {i}: loss={loss.item():.4f}")
    assert 0 < total / len(world.batches) < 4 and "Batch 0: loss=2." in capsys.readouterr().out
    assert not [r for r in ampc.doctor.reports(clear=True) if r.rule == "backward-under-autocast"]  # there is no region to end


class OwnScaler:
    """A scaler written by its user."""

    def __init__(self, init_scale=2.0**16, growth_interval=3):
        self.scale, self.growth_interval, self.good = init_scale, growth_interval, 0

    def scale_loss(self, loss):
        return loss * self.scale

    def unscale_gradients(self, optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.data.div_(self.scale)

    def step(self, optimizer):
        bad = any(genesis.isnan(p.grad).any() or genesis.isinf(p.grad).any() for g in optimizer.param_groups for p in g["params"] if p.grad is not None)
        if bad:
            self.scale, self.good = max(self.scale * 0.5, 1.0), 0
            return False
        optimizer.step()
        self.good += 1
        if self.good >= self.growth_interval:
            self.scale, self.good = self.scale * 2, 0
        return True


def test_guide_6_a_scaler_of_ones_own(world):
    scaler, stepped = OwnScaler(), 0
    for i, (x, y) in enumerate(world.batches):
        world.optimizer.zero_grad()
        with genesis.autocast():
            loss = world.criterion(world.model(x), y)
        scaler.scale_loss(loss * (math.inf if i == 4 else 1)).backward()
        scaler.unscale_gradients(world.optimizer)
        nn.utils.clip_grad_norm_(world.model.parameters(), max_norm=1.0)
        stepped += scaler.step(world.optimizer)
    assert stepped == 5 and scaler.scale == 2.0**16 and all(p.isfinite().all() for p in world.model.parameters())


def test_guide_7_float16(world, capsys):
    model = nn.Sequential(nn.Linear(20, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4)).to(DEVICE)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain=1.0)
            nn.init.zeros_(module.bias)
    with genesis.autocast(dtype=HALF):
        model(genesis.randn(8, 20, device=DEVICE)).float().square().mean().backward()
    for name, p in model.named_parameters():
        print(f"{name}: {p.norm().item():.2e} {p.grad.norm().item():.2e}")
        assert 0 < p.grad.norm().item() < 1e4
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_guide_8_bfloat16():
    model, x = nn.Linear(1000, 100).to(DEVICE), genesis.randn(32, 1000, dtype=genesis.bfloat16, device=DEVICE)
    output = model(x)
    assert (x.dtype, output.dtype) == (genesis.bfloat16, genesis.float32)
    output.sum().backward()
    assert model.weight.grad.dtype is genesis.float32


@pytest.mark.parametrize("size", [100, 300])
def test_guide_9_errors_of_the_formats(size):
    genesis.manual_seed(0)
    a = genesis.randn(size, size, device=DEVICE)
    exact, half, brain = genesis.matmul(a, a), genesis.matmul(a.half(), a.half()), genesis.matmul(a.to(genesis.bfloat16), a.to(genesis.bfloat16))
    e16, e8 = (exact - half.float()).abs().mean(), (exact - brain.float()).abs().mean()
    assert 0 < e16 < e8 / 4 and f"{e16:.2e}".count("e") == 1 and (half.dtype, brain.dtype) == (HALF, genesis.bfloat16)


def test_guide_10_memory():
    single, half = (genesis.randn(200, 300, dtype=d, device=DEVICE) for d in (genesis.float32, genesis.float16))
    assert f"{single.numel() * 4 / 1e6:.1f} MB" == "0.2 MB" and f"{half.nbytes / single.nbytes:.1%}" == "50.0%"
    del single, half
    genesis.cuda.empty_cache()


class Recomputed(nn.Module):
    """Layers whose activations are computed again."""

    def __init__(self, layers, checkpoint):
        super().__init__()
        self.layers, self.checkpoint = nn.ModuleList(layers), checkpoint

    def forward(self, x):
        def run(x, layers):
            for layer in layers:
                x = layer(x)
            return x
        return genesis.utils.checkpoint(run, x, self.layers) if self.training and self.checkpoint else run(x, self.layers)


def test_guide_11_checkpointing():
    grads = []
    for checkpoint in (False, True):
        genesis.manual_seed(0)
        model = Recomputed([nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10)], checkpoint).to(DEVICE)
        genesis.enable_autocast = True
        loss = nn.CrossEntropyLoss()(model(genesis.randn(8, 64, device=DEVICE)), genesis.arange(8, device=DEVICE))
        loss.backward()
        genesis.enable_autocast = False
        grads.append([p.grad.tolist() for p in model.parameters()])
    assert grads[0] == grads[1] and any(map(any, grads[0][0]))


def test_guide_12_timing():
    results = {}
    for size in (64, 128):
        whole, half = nn.Linear(size, size).to(DEVICE), nn.Linear(size, size).to(DEVICE).half()
        x = genesis.randn(16, size, device=DEVICE)
        seconds = []
        for model, data in ((whole, x), (half, x.half())):
            torch.cuda.synchronize()
            begin = time.time()
            for _ in range(5):
                y = model(data)
            torch.cuda.synchronize()
            seconds.append(time.time() - begin)
            assert y.dtype is data.dtype
        results[size] = {"fp32_time": seconds[0], "fp16_time": seconds[1]}
    assert set(results) == {64, 128} and all(v > 0 for r in results.values() for v in r.values())


def test_guide_13_underflow_divergence_accuracy(world):
    x, y = world.batches[0]
    world.criterion(world.model(x), y).mul(math.nan).backward()
    assert any(genesis.isinf(p.grad).any() or genesis.isnan(p.grad).any() for p in world.model.parameters() if p.grad is not None)
    optimizer = optim.Adam(world.model.parameters(), lr=1e-4)
    schedule = optim.get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=10, num_training_steps=100)
    rates = []
    for _ in range(100):
        optimizer.zero_grad()
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    assert rates[9] == pytest.approx(1e-4) == max(rates) and rates[-1] < 1e-8

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.classifier = nn.Sequential(nn.Linear(24, 16), nn.ReLU()), nn.Linear(16, 10).float()

        def forward(self, x):
            with genesis.autocast():
                features = self.features(x)
            assert features.dtype in (HALF, genesis.bfloat16)
            return self.classifier(features.float())
    assert Mixed().to(DEVICE)(x).dtype is genesis.float32


def test_guide_14_debugging(world, capsys):
    x, y = world.batches[0]
    outputs = world.model(x)
    loss = world.criterion(outputs, y)
    for tensor, name in ((x, "Input"), (outputs, "Output"), (loss, "Loss")):
        print(f"{name}: {tensor.shape} {tensor.dtype} {tensor.device} {tensor.requires_grad} {tensor.min():.2e} / {tensor.max():.2e}")
    loss.backward()
    norm = sum(p.grad.norm().item() ** 2 for p in world.model.parameters()) ** 0.5
    assert norm == pytest.approx(nn.utils.get_total_norm([p.grad for p in world.model.parameters()]).item(), rel=1e-5)
    assert not (genesis.isnan(outputs).any() or genesis.isinf(outputs).any()) and "16, 24" in capsys.readouterr().out.splitlines()[0]
