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
import ampc as torch
from ampc import nn, optim
from ampc.doctor.nonfinite import DoctorWarning
from ampc.training import AMPConfig, OptimizationLevel, PerformanceConfig, TrainingOptimizer, create_performance_optimizer

F = nn.functional
KIND = "cuda" if ON_GPU else "cpu"
HALF = torch.float16
pytestmark = [pytest.mark.usefixtures("switches_back"), pytest.mark.filterwarnings("ignore::ampc.doctor.guard.MisuseWarning"), pytest.mark.filterwarnings("ignore:autocast"),
              pytest.mark.filterwarnings("ignore:GradScaler"), pytest.mark.filterwarnings("ignore::FutureWarning")]


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
    with pytest.warns(UserWarning, match="has reached max_fp32_fallbacks"):
        done = mine.training_step(world.model, x, y, criterion, world.optimizer)
    assert done["precision"] == "float32" and fails == [1] and mine.amp_stats["fp32_fallbacks"] == 1 and "Overflow in the loss" in caplog.text
    done = mine.training_step(world.model, x, y, criterion, world.optimizer)  # beyond the limit it goes on in float32
    assert done["precision"] == "float32" and done["stepped"] and fails == [1, 1]


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
    assert PerformanceConfig(amp_config=whole).amp_config is whole and whole == AMPConfig() == PerformanceConfig().amp_config
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


def test_the_page_names_these_tests():
    import re
    from pathlib import Path

    import test_seeds_guide
    page = (Path(__file__).resolve().parent.parent / "docs" / "seeds.md").read_text()
    assert set(re.findall(r"`(test_\w+)`", page)) == {name for name in {*globals(), *vars(test_seeds_guide)} if name.startswith("test_")} - {
        "test_the_page_names_these_tests", "test_seeds_guide"}
