"""Twins of every Python block in the five documents that ampc began with, in their order, in own words: they run, and what they print or
claim is asserted. docs/seeds.md names each block and its test. A block's missing names come from the fixture `world`; loops over nothing
run once; parts of a class are tested as methods of the finished class."""

import gc
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from where import DEVICE, ON_GPU

import ampc
import ampc as genesis
import ampc as torch
from ampc import nn, optim
from ampc.doctor.watch import DoctorWarning
from ampc.training import AMPConfig, OptimizationLevel, PerformanceConfig, TrainingOptimizer, create_performance_optimizer

F = nn.functional
KIND = "cuda" if ON_GPU else "cpu"
HALF = torch.float16
pytestmark = [pytest.mark.filterwarnings("ignore::ampc.doctor.guard.MisuseWarning"), pytest.mark.filterwarnings("ignore:autocast"),
              pytest.mark.filterwarnings("ignore:GradScaler"), pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture
def world():
    """A model, its data, a loss and an optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10)).to(DEVICE)
    batches = [(torch.randn(16, 24), torch.randint(0, 10, (16,))) for _ in range(6)]
    return SimpleNamespace(model=model, batches=[(x.to(DEVICE), y.to(DEVICE)) for x, y in batches], criterion=nn.CrossEntropyLoss(),
                           optimizer=optim.Adam(model.parameters(), lr=1e-3))


@pytest.fixture(autouse=True)
def as_before():
    yield
    genesis.enable_autocast = False
    torch.set_default_device("cpu")
    ampc.keras.mixed_precision.set_global_policy("float32")


def moved(model, run):
    """Whether run() changed the model's parameters."""
    before = [p.detach().clone() for p in model.parameters()]
    run()
    return any(not torch.equal(a, b) for a, b in zip(before, model.parameters()))


# -- three diagnoses ------------------------------------------------------------------------------------------


def clipped_step(w, unscales):
    scaler = torch.cuda.amp.GradScaler()
    x, y = w.batches[0]
    w.optimizer.zero_grad()
    with torch.cuda.amp.autocast():
        loss = w.criterion(w.model(x), y)
    scaler.scale(loss).backward()
    if unscales:
        scaler.unscale_(w.optimizer)
    norm = nn.utils.clip_grad_norm_(w.model.parameters(), max_norm=1.0).item()
    scaler.step(w.optimizer)
    scaler.update()
    return norm


def test_diagnosis_1_clipping_scaled_gradients(world):
    ampc.doctor.reports(clear=True)
    assert clipped_step(world, unscales=False) > 1000  # 65536 times the true one
    (found,) = [r for r in ampc.doctor.reports(clear=True) if r.rule == "clip-scaled-gradients"]
    assert (ON_GPU or "65536" in found.text) and "scaler.unscale_(optimizer)" in found.fix


def test_diagnosis_2_unscale_first(world):
    ampc.doctor.reports(clear=True)
    assert 0 < clipped_step(world, unscales=True) < 100
    assert not [r for r in ampc.doctor.reports(clear=True) if r.rule == "clip-scaled-gradients"]


def test_diagnosis_3_the_scale_is_watched(world):
    scaler = torch.amp.GradScaler(KIND)
    for x, y in world.batches:
        world.optimizer.zero_grad()
        with torch.autocast(KIND, dtype=HALF):
            loss = world.criterion(world.model(x), y)
        scaler.scale(loss).backward()
        scaler.step(world.optimizer)
        scaler.update()
        assert scaler.get_scale() == 65536 and math.isfinite(loss.item())
    assert len(scaler.ledger) == 6 and "6 steps, 0 skipped" in str(scaler.report())


def contrast_by_hand(z, temperature=0.07):
    z = F.normalize(z, dim=-1)
    e = torch.exp(torch.matmul(z, z.T) / temperature)
    return -torch.log((e / e.sum(dim=-1, keepdim=True)).diagonal()).mean()


def contrast(z, temperature=0.07):
    z = F.normalize(z.float(), dim=-1)
    logits = torch.matmul(z, z.T) / temperature
    return F.cross_entropy(logits, torch.arange(logits.size(0), device=logits.device))


@torch.cuda.amp.autocast(enabled=False)
def contrast_outside(z, temperature=0.07):
    return contrast_by_hand(z.float(), temperature)


def test_diagnosis_4_a_loss_by_hand():
    torch.manual_seed(0)
    z = torch.randn(16, 8, device=DEVICE)
    with pytest.warns(DoctorWarning), ampc.doctor() as d:
        contrast_by_hand(z.half())  # 1 / 0.07 is 14.3, and float16 ends at exp(11)
    assert d.findings[0].op == "exp" and d.findings[0].dtype == "float16"
    with torch.autocast(KIND, dtype=HALF):
        assert math.isfinite(contrast_by_hand(z).item())  # exp runs in float32


@pytest.mark.parametrize("rewritten", [contrast, contrast_outside], ids=["cross_entropy", "outside"])
def test_diagnosis_5_and_6_the_rewritten_losses(rewritten):
    torch.manual_seed(0)
    z = torch.randn(16, 8, device=DEVICE, requires_grad=True)
    x = z.detach().double().numpy(force=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    s = x @ x.T / 0.07
    want = (np.log(np.exp(s - s.max(1, keepdims=True)).sum(1)) + s.max(1) - s.diagonal()).mean()
    with torch.autocast(KIND, dtype=HALF), ampc.doctor() as d:
        loss = rewritten(z)
    loss.backward()
    assert loss.dtype is torch.float32 and loss.item() == pytest.approx(want, rel=5e-2) and d.findings == [] and z.grad.isfinite().all()
    if rewritten is contrast_outside:
        assert loss.item() == pytest.approx(want, rel=1e-4)


# -- an overview of mixed precision ---------------------------------------------------------------------------


class ByHand:
    """Loss scaling without a scaler."""

    def __init__(self, model, optimizer, loss_scale=2**15):
        self.model, self.optimizer, self.loss_scale = model, optimizer, loss_scale

    def forward(self, x):
        with torch.cuda.amp.autocast():
            return self.model(x.half())

    def backward(self, loss):
        (loss * self.loss_scale).backward()
        overflow = False
        for p in self.model.parameters():
            if p.grad is not None:
                p.grad.data /= self.loss_scale
                overflow = overflow or bool(torch.isinf(p.grad).any() or torch.isnan(p.grad).any())
        return overflow

    def step(self, loss):
        overflow = self.backward(loss)
        if not overflow:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return overflow


def test_overview_1_scaling_by_hand(world):
    mine, (x, y) = ByHand(world.model, world.optimizer), world.batches[0]
    y_hat = mine.forward(x)
    assert y_hat.dtype is HALF
    assert moved(world.model, lambda: mine.step(world.criterion(y_hat, y)))
    assert not moved(world.model, lambda: mine.step(world.criterion(mine.forward(x), y) * math.inf))
    assert all(p.grad is None for p in world.model.parameters())


class Trainer:
    """autocast and GradScaler in a class."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.scaler = model, optimizer, torch.cuda.amp.GradScaler()

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        with torch.cuda.amp.autocast():
            loss = nn.CrossEntropyLoss()(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def test_overview_2_a_trainer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)).cuda() if ON_GPU else nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    trainer = Trainer(model, optim.Adam(model.parameters(), lr=1e-3))
    x, y = torch.randn(64, 784, device=DEVICE), torch.randint(0, 10, (64,), device=DEVICE)
    losses = [trainer.train_step(x, y) for _ in range(8)]
    assert losses[-1] < 0.5 * losses[0] and {p.dtype for p in model.parameters()} == {torch.float32}


def test_overview_3_keras():
    import ampc as tf
    from ampc.keras import layers, models
    tf.manual_seed(0)
    tf.set_default_device(DEVICE)
    policy = tf.keras.mixed_precision.Policy("mixed_float16")
    tf.keras.mixed_precision.set_global_policy(policy)
    model = models.Sequential([layers.Dense(512, activation="relu", input_shape=(784,)), layers.Dense(10, activation="softmax")])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    rng = np.random.default_rng(0)
    x, y = rng.random((256, 784)).astype(np.float32), rng.integers(0, 10, 256)
    history = model.fit(x, y, epochs=3, batch_size=32, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] and len(history["accuracy"]) == 3
    assert model.layers[0](torch.randn(2, 784)).dtype is HALF and model.layers[0].weight.dtype is torch.float32
    assert model(torch.randn(2, 784)).dtype is torch.float32


def test_overview_4_a_dynamic_scale():
    scaler = ampc.amp.DynamicLossScaler(init_scale=2**15, scale_factor=2, scale_window=2000)
    assert scaler.scale_loss(torch.tensor(2.0)).item() == 65536 and scaler.unscale_gradients([torch.tensor(32768.0)])[0].item() == 1
    for _ in range(1999):
        scaler.update_scale(True)
    assert (scaler.scale, scaler.consecutive_overflows) == (2**15, 1999)
    scaler.update_scale(True)
    assert (scaler.scale, scaler.consecutive_overflows) == (2**14, 0)


def test_overview_5_the_formats():
    half, single = torch.finfo(torch.float16), torch.finfo(torch.float32)
    assert (half.max, single.tiny) == (65504, pytest.approx(1.18e-38, rel=1e-2)) and half.smallest_subnormal == pytest.approx(6.0e-8, rel=1e-2)
    assert torch.tensor([2.9e-8, 65520.0]).half().tolist() == [0.0, math.inf]


# -- the recipe -------------------------------------------------------------------------------------------------


def make_model(inside, outside, layers):
    parts = [part for _ in range(layers - 1) for part in (nn.Linear(inside, inside), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(inside, outside)).to(DEVICE)


@pytest.fixture
def recipe():
    torch.manual_seed(0)
    torch.set_default_device(DEVICE)
    net = make_model(64, 64, 3)
    data, targets = ([torch.randn(32, 64) for _ in range(4)] for _ in range(2))
    return SimpleNamespace(net=net, opt=optim.SGD(net.parameters(), lr=0.001), pairs=list(zip(data, targets)), loss_fn=nn.MSELoss().to(DEVICE))


def test_recipe_1_timers(capsys):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_max_memory_allocated()
    torch.cuda.synchronize()
    begin = time.time()
    held = torch.zeros(1000, 1000, device=DEVICE)
    torch.cuda.synchronize()
    print(f"Total execution time = {time.time() - begin:.3f} sec")
    assert torch.cuda.max_memory_allocated() >= held.numel() * 4 and "sec" in capsys.readouterr().out


def test_recipe_2_and_3_default_precision(recipe):
    assert recipe.pairs[0][0].device.type == torch.device(DEVICE).type

    def train():
        for x, y in recipe.pairs:
            out = recipe.net(x)
            loss = recipe.loss_fn(out, y)
            assert out.dtype is loss.dtype is torch.float32
            loss.backward()
            recipe.opt.step()
            recipe.opt.zero_grad()
    assert moved(recipe.net, train)


def test_recipe_4_autocast(recipe):
    def train():
        for x, y in recipe.pairs[:1]:
            with torch.autocast(device_type=KIND, dtype=HALF):
                out = recipe.net(x)
                assert out.dtype is HALF
                loss = recipe.loss_fn(out, y)
                assert loss.dtype is torch.float32
            loss.backward()
            recipe.opt.step()
            recipe.opt.zero_grad()
    assert moved(recipe.net, train)


@pytest.mark.parametrize("use_amp", [None, True, False], ids=["always", "on", "off"])
def test_recipe_5_and_6_the_scaler(recipe, use_amp):
    scaler = torch.cuda.amp.GradScaler() if use_amp is None else torch.cuda.amp.GradScaler(enabled=use_amp)
    on = use_amp is not False

    def train():
        for x, y in recipe.pairs:
            with torch.autocast(device_type=KIND, dtype=HALF, enabled=on):
                out = recipe.net(x)
                loss = recipe.loss_fn(out, y)
            assert out.dtype is (HALF if on else torch.float32)
            scaler.scale(loss).backward()
            scaler.unscale_(recipe.opt)
            nn.utils.clip_grad_norm_(recipe.net.parameters(), max_norm=0.1)
            scaler.step(recipe.opt)
            scaler.update()
            recipe.opt.zero_grad()
    assert moved(recipe.net, train) and scaler.get_scale() == (65536 if on else 1)


def test_recipe_7_accumulation(recipe):
    """Two micro-batches in a step are the batch of both."""
    scaler, grads = torch.amp.GradScaler(KIND), []
    for i, (x, y) in enumerate(recipe.pairs):
        with torch.autocast(device_type=KIND, dtype=HALF):
            loss = recipe.loss_fn(recipe.net(x), y) / 2
        scaler.scale(loss).backward()
        if (i + 1) % 2 == 0:
            scaler.unscale_(recipe.opt)
            grads.append([p.grad.clone() for p in recipe.net.parameters()])
            scaler.step(recipe.opt)
            scaler.update()
            recipe.opt.zero_grad()
    assert len(grads) == 2 and len(scaler.ledger) == 2 and not scaler.ledger.skipped
    torch.manual_seed(0)
    net = make_model(64, 64, 3)
    (x1, y1), (x2, y2) = recipe.pairs[:2]
    recipe.loss_fn(net(torch.cat([x1, x2])), torch.cat([y1, y2])).backward()
    for mine, p in zip(grads[0], net.parameters()):
        assert (mine - p.grad).norm() < 2e-2 * p.grad.norm()


def test_recipe_8_categories():
    """Which operators go to which dtype."""
    a, b = torch.randn(4, 4, device=DEVICE), torch.randn(4, 4, device=DEVICE)
    with torch.autocast(KIND, dtype=HALF):
        assert (a @ b).dtype is torch.mm(a, b).dtype is F.linear(a, b).dtype is torch.bmm(a[None], b[None]).dtype is HALF
        low = a @ b
        assert {low.softmax(-1).dtype, torch.sum(low).dtype, torch.exp(low).dtype, torch.log(low).dtype} == {torch.float32}
        assert F.mse_loss(low, low).dtype is F.layer_norm(low, (4,)).dtype is torch.cumsum(low, 0).dtype is torch.float32
        assert torch.addcmul(low, low, a).dtype is torch.float32 and torch.addcmul(low, low, low).dtype is HALF


# -- a configuration ----------------------------------------------------------------------------------------------


def a_step(mine, w):
    x, y = w.batches[0]
    return mine.training_step(w.model, x, y, w.criterion, w.optimizer)


def test_configuration_1_setup():
    mine = TrainingOptimizer(PerformanceConfig(amp_config=AMPConfig(enable_tf32=True, init_scale=512.0, growth_factor=4.0, backoff_factor=0.25,
                                                                    growth_interval=9)))
    s = mine.scaler
    assert (s.get_scale(), s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval()) == (512.0, 4.0, 0.25, 9)
    assert torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32
    TrainingOptimizer(AMPConfig(enable_tf32=False))


def test_configuration_2_and_3_statistics_of_a_step(world):
    mine = TrainingOptimizer(AMPConfig(dtype="bfloat16"))
    assert {"total_steps", "amp_steps", "fp32_fallbacks", "scaler_scale", "memory_savings"} <= set(mine.amp_stats)
    done = a_step(mine, world)
    assert done["precision"] == "bfloat16" and (mine.amp_stats["total_steps"], mine.amp_stats["amp_steps"]) == (1, 1)
    assert len(mine.amp_stats["scaler_scale"]) == len(mine.amp_stats["memory_savings"]) == 1


def test_configuration_4_fallback(world, caplog):
    mine, fails = TrainingOptimizer(AMPConfig(max_fp32_fallbacks=1)), []

    def criterion(y_hat, y):
        if y_hat.dtype is HALF:
            fails.append(1)
            raise RuntimeError("Overflow in the loss")
        return F.cross_entropy(y_hat, y)
    x, y = world.batches[0]
    with pytest.warns(UserWarning, match="as many as max_fp32_fallbacks allows"):
        done = mine.training_step(world.model, x, y, criterion, world.optimizer)
    assert done["precision"] == "float32" and fails == [1] and mine.amp_stats["fp32_fallbacks"] == 1 and "Overflow in the loss" in caplog.text
    with pytest.raises(RuntimeError, match="Overflow in the loss"):
        mine.training_step(world.model, x, y, criterion, world.optimizer)


def test_configuration_5_and_6_derived_statistics(world):
    mine = TrainingOptimizer(AMPConfig())
    assert "amp_usage_ratio" not in mine.get_amp_stats()
    for _ in range(3):
        a_step(mine, world)
    stats = mine.get_amp_stats()
    assert (stats["amp_usage_ratio"], stats["fp32_fallback_ratio"]) == (1.0, 0.0)
    assert stats["avg_scaler_scale"] == stats["min_scaler_scale"] == stats["max_scaler_scale"] == 65536
    assert stats["total_memory_saved_mb"] == pytest.approx(sum(stats["memory_savings"])) and stats["avg_memory_saved_mb"] * 3 == pytest.approx(
        stats["total_memory_saved_mb"])


def test_configuration_7_and_8_the_whole_optimizer(world):
    p = create_performance_optimizer(PerformanceConfig(amp_config=AMPConfig(dtype="bfloat16")))
    assert a_step(p, world)["stepped"] and p.get_amp_stats()["total_steps"] == 1
    status = p.get_optimization_status()
    assert (status["config"]["mixed_precision"], status["config"]["amp_dtype"], status["config"]["amp_tf32"]) == (True, "bfloat16", True)
    assert status["gradient_accumulation_status"]["accumulation_steps"] == 1


def test_configuration_9_and_10_defaults_and_presets():
    whole = AMPConfig(enabled=True, dtype="float16", scale_loss=True, sync_batch_norm=True, enable_gradient_scaling=True, clear_gradients_after_step=True,
                      sync_across_gpus=True, enable_distributed_accumulation=True)
    assert PerformanceConfig(amp_config=whole).amp_config is whole
    basic, advanced, ultra = (PerformanceConfig.preset(level) for level in OptimizationLevel)
    assert (basic.amp_config.enabled, advanced.amp_config.dtype, ultra.amp_config.dtype) == (False, "float16", "bfloat16")
    assert (ultra.optimization_level, ultra.amp_config.max_fp32_fallbacks) == (OptimizationLevel.ULTRA, 3)
    assert advanced.amp_config.enable_tf32 and advanced.amp_config.enable_cudnn_benchmark and advanced.amp_config.track_amp_stats


@pytest.mark.parametrize("amp", [AMPConfig(enabled=True), AMPConfig(
    enabled=True, dtype="bfloat16", enable_tf32=True, enable_cudnn_benchmark=True, track_amp_stats=True, enable_fallback_to_fp32=True,
    max_fp32_fallbacks=3), AMPConfig(dtype="bfloat16", max_fp32_fallbacks=3, enable_amp_memory_pooling=True, amp_memory_fraction=0.8)],
    ids=["minimal", "advanced", "pooling"])
def test_configuration_11_12_14_15_ways_to_make_one(world, amp):
    p = create_performance_optimizer(PerformanceConfig(amp_config=amp, optimization_level=OptimizationLevel.ULTRA))
    assert a_step(p, world)["precision"] == amp.dtype and p.config.amp_config == amp
    TrainingOptimizer(AMPConfig(enable_tf32=False))  # the process's switches, and its share of memory


def test_configuration_13_and_16_monitoring_and_updates(world):
    p = create_performance_optimizer("ultra")
    a_step(p, world)
    stats = p.get_amp_stats()
    assert f"AMP Usage: {stats['amp_usage_ratio']:.2%}" == "AMP Usage: 100.00%" and f"{stats['fp32_fallbacks']}" == "0"
    p.reset_amp_stats()
    assert p.get_amp_stats()["total_steps"] == 0
    p.update_amp_config(AMPConfig(dtype="float16", max_fp32_fallbacks=5))
    assert a_step(p, world)["precision"] == "float16" and p.config.amp_config.max_fp32_fallbacks == 5


# -- a framework's guide ------------------------------------------------------------------------------------------


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


def test_the_page_names_these_tests():
    import re
    from pathlib import Path
    page = (Path(__file__).resolve().parent.parent / "docs" / "seeds.md").read_text()
    assert set(re.findall(r"`(test_\w+)`", page)) == {name for name in globals() if name.startswith("test_") and name != "test_the_page_names_these_tests"}
