"""ampc.training: every field of the configuration does what it says, fallbacks are real, a run is resumed bit for bit."""

import dataclasses
import logging
import math
import warnings

import pytest
from where import DEVICE, ON_GPU

import ampc
from ampc import nn
from ampc.training import AMPConfig, OptimizationLevel, PerformanceConfig, PerformanceOptimizer, TrainingOptimizer, create_performance_optimizer
from ampc.training import trainer as module

LOSS = nn.MSELoss()


@pytest.fixture(autouse=True)
def quiet():
    ampc.manual_seed(0)
    tf32 = ampc.backends.cuda.matmul.allow_tf32, ampc.backends.cudnn.allow_tf32
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ampc.doctor.guard.MisuseWarning)
        yield
    ampc.backends.cuda.matmul.allow_tf32, ampc.backends.cudnn.allow_tf32 = tf32


class Net(nn.Module):
    """``boost`` makes the hidden layer's values large: 1e4 overflows float16 in its square and float32 in none."""

    def __init__(self, boost=1.0, width=16):
        super().__init__()
        self.first, self.drop, self.norm, self.last = nn.Linear(8, width), nn.Dropout(0.25), nn.BatchNorm1d(width), nn.Linear(width, 1)
        self.boost, self.dtypes = boost, []

    def forward(self, x):
        h = self.first(x) * self.boost
        self.dtypes.append(h.dtype)
        if h.dtype is ampc.float16 and self.boost > 1:
            h = h * h  # inf
        return self.last(self.norm(self.drop(h)))


def setup(amp=None, boost=1.0, **options):
    net = Net(boost).to(DEVICE)
    mine = TrainingOptimizer(PerformanceConfig(amp_config=amp or AMPConfig(), **options))
    return mine, net, ampc.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def a_batch(n=12):
    return ampc.randn(n, 8, device=DEVICE), ampc.randn(n, 1, device=DEVICE)


# -- configuration --------------------------------------------------------------------------------------------


def test_nineteen_fields_and_their_bounds():
    names = [f.name for f in dataclasses.fields(AMPConfig)]
    assert len(names) == 19
    for f in dataclasses.fields(AMPConfig):
        wrong = {"bool": 1, "str": "float8", "float": -1.0, "int": -1}[f.type]
        with pytest.raises(ValueError, match=rf"AMPConfig: `{f.name}` is {wrong!r}; allowed: "):
            AMPConfig(**{f.name: wrong})
    for name, wrong in (("growth_factor", 1.0), ("backoff_factor", 1.0), ("amp_memory_fraction", 1.5), ("init_scale", math.inf), ("growth_interval", 0),
                        ("growth_interval", 2.5), ("max_fp32_fallbacks", True), ("init_scale", "2")):
        with pytest.raises(ValueError, match=f"`{name}` is "):
            AMPConfig(**{name: wrong})
    with pytest.raises(dataclasses.FrozenInstanceError):
        AMPConfig().dtype = "bfloat16"
    with pytest.raises(ValueError, match="`dtype` is 'tf32'; allowed: 'float16', 'bfloat16', 'float32'"):
        dataclasses.replace(AMPConfig(), dtype="tf32")


def test_performance_config_and_presets():
    assert PerformanceConfig(optimization_level="ultra").optimization_level is OptimizationLevel.ULTRA
    for wrong in ({"optimization_level": "fast"}, {"amp_config": None}, {"gradient_accumulation_steps": 0}, {"max_grad_norm": 0}, {"on_too_many_fallbacks": "stop"}):
        with pytest.raises(ValueError, match=f"PerformanceConfig: `{next(iter(wrong))}` is .*; allowed: "):
            PerformanceConfig(**wrong)
    basic, advanced, ultra = (PerformanceConfig.preset(level) for level in ("basic", OptimizationLevel.ADVANCED, "ultra"))
    assert not basic.amp_config.enabled and advanced.amp_config.dtype == "float16" and advanced.amp_config.enable_tf32
    assert (ultra.amp_config.dtype, ultra.amp_config.max_fp32_fallbacks, ultra.amp_config.enable_fallback_to_fp32) == ("bfloat16", 3, True)
    with pytest.raises(ValueError, match="no level 'fast'"):
        create_performance_optimizer("fast")
    with pytest.raises(TypeError, match="must be a PerformanceConfig or an AMPConfig"):
        TrainingOptimizer({"enabled": True})


@pytest.mark.parametrize("amp, dtype", [(AMPConfig(enabled=False), ampc.float32), (AMPConfig(), ampc.float16), (AMPConfig(dtype="bfloat16"), ampc.bfloat16),
                                        (AMPConfig(dtype="float32"), ampc.float32)])
def test_enabled_and_dtype(amp, dtype):
    mine, net, opt = setup(amp)
    done = mine.training_step(net, *a_batch(), LOSS, opt)
    assert net.dtypes[-1] is dtype and done["precision"] == str(dtype).split(".")[-1] and done["stepped"] and not done["fallback"]
    assert mine.scaler.is_enabled() == (dtype is ampc.float16) and mine.get_amp_stats()["amp_steps"] == (dtype is not ampc.float32)


def test_the_scalers_four_and_gradient_scaling():
    mine, *_ = setup(AMPConfig(init_scale=128.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7))
    s = mine.scaler
    assert (s.get_scale(), s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval()) == (128.0, 3.0, 0.25, 7)
    mine, net, opt = setup(AMPConfig(enable_gradient_scaling=False))
    assert mine.training_step(net, *a_batch(), LOSS, opt)["scale"] == 1.0 and not mine.scaler.is_enabled()


@pytest.mark.parametrize("whole, clear", [(True, True), (False, True), (True, False)])
def test_scale_loss_accumulation_and_clearing(whole, clear):
    """Two micro-batches make the gradient of both, or their sum; the step clears it, or leaves it."""
    mine, net, _ = setup(AMPConfig(enabled=False, scale_loss=whole, clear_gradients_after_step=clear), gradient_accumulation_steps=2)
    net.eval()
    opt = ampc.optim.SGD(net.parameters(), lr=1.0)
    x, y = a_batch()
    total = sum(LOSS(net(part), target) for part, target in ((x[:6], y[:6]), (x[6:], y[6:])))
    want = ampc.autograd.grad(total / 2 if whole else total, [net.last.bias])[0]
    before = net.last.bias.detach().clone()
    first = mine.training_step(net, x[:6], y[:6], LOSS, opt)
    assert not first["stepped"] and ampc.equal(net.last.bias, before)
    assert mine.get_gradient_accumulation_status() == {"accumulation_steps": 2, "current_step": 1, "remaining": 1, "is_accumulating": True, "optimizer_steps": 0}
    assert mine.training_step(net, x[6:], y[6:], LOSS, opt)["stepped"]
    assert ampc.allclose(net.last.bias, before - want, atol=1e-6) and (net.last.bias.grad is None) == clear
    assert mine.get_gradient_accumulation_status()["optimizer_steps"] == 1


def test_clipping_is_of_unscaled_gradients():
    mine, net, _ = setup(AMPConfig(init_scale=256.0), max_grad_norm=1e-3)
    opt = ampc.optim.SGD(net.parameters(), lr=1.0)
    before = [p.detach().clone() for p in net.parameters()]
    mine.training_step(net, *a_batch(), LOSS, opt)
    moved = math.sqrt(sum(((p - b) ** 2).sum().item() for p, b in zip(net.parameters(), before)))
    assert moved == pytest.approx(1e-3, rel=1e-2)


def test_switches_of_the_gpu():
    for on in (True, False):
        mine, *_ = setup(AMPConfig(enable_tf32=on, enable_cudnn_benchmark=on, enable_amp_memory_pooling=on, amp_memory_fraction=0.5))
        assert ampc.backends.cuda.matmul.allow_tf32 is on and ampc.backends.cudnn.allow_tf32 is on
        inactive = mine.inactive_fields()
        assert ("enable_cudnn_benchmark" in inactive) == on and ("enable_amp_memory_pooling" in inactive) == ("enable_tf32" in inactive) == (on and not ON_GPU)


@pytest.mark.skipif(not ON_GPU, reason="a GPU's memory")
def test_the_memory_fraction_is_held():
    TrainingOptimizer(AMPConfig(enable_amp_memory_pooling=True, amp_memory_fraction=1e-6))
    try:
        ampc.cuda.empty_cache()  # what is there already needs nothing new
        with pytest.raises(ampc.OutOfMemoryError):
            ampc.empty(2**20, device=DEVICE)
    finally:
        TrainingOptimizer(AMPConfig())
    ampc.empty(2**20, device=DEVICE)


def test_fields_about_several_processes(monkeypatch, caplog):
    names = ("sync_batch_norm", "sync_across_gpus", "enable_distributed_accumulation")
    with caplog.at_level(logging.INFO, "ampc.training"):
        mine, *_ = setup(AMPConfig())
    assert all(getattr(AMPConfig(), name) for name in names)  # the defaults of the first documents
    assert all(mine.inactive_fields()[name] == "there is one process" for name in names) and "sync_batch_norm (there is one process)" in caplog.text
    assert not set(names) & set(setup(AMPConfig(**dict.fromkeys(names, False)))[0].inactive_fields())
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RuntimeError, match=r"not connected. Call ampc.distributed.init_process_group\(\) first, or set sync_across_gpus=False"):
        TrainingOptimizer()
    TrainingOptimizer(AMPConfig(sync_across_gpus=False))


# -- fallbacks ------------------------------------------------------------------------------------------------


def test_a_step_that_overflows_is_computed_again_in_float32(caplog):
    """As the float32 step would have been: dropout, batch norm's statistics and all."""
    x, y = a_batch()
    results = []
    for amp in (AMPConfig(), AMPConfig(enabled=False)):
        ampc.manual_seed(1)
        mine, net, opt = setup(amp, boost=1e4)
        done = mine.training_step(net, x, y, LOSS, opt)
        results.append([done["loss"], net.norm.running_mean.tolist(), ampc.rand(2).tolist()])
        assert done["precision"] == "float32" and done["fallback"] == amp.enabled and math.isfinite(done["loss"])
    assert results[0] == results[1] and "overflow in float16, computed in float32: the loss is not finite" in caplog.text
    ampc.manual_seed(1)
    mine, net, opt = setup(AMPConfig(enable_fallback_to_fp32=False), boost=1e4)
    done = mine.training_step(net, x, y, LOSS, opt)
    assert math.isnan(done["loss"]) and done["skipped"] and mine.get_amp_stats()["fp32_fallbacks"] == 0


@pytest.mark.parametrize("beyond", ["warn", "bfloat16"])
def test_fallbacks_are_limited_in_an_epoch(beyond):
    mine, net, opt = setup(AMPConfig(max_fp32_fallbacks=2), boost=1e4, on_too_many_fallbacks=beyond)
    mine.start_epoch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "TrainingOptimizer")
        done = [mine.training_step(net, *a_batch(), LOSS, opt) for _ in range(4)]
    assert [d["fallback"] for d in done] == [True, True, False, False]
    told = [w for w in caught if "has reached max_fp32_fallbacks" in str(w.message)]
    if beyond == "warn":
        assert len(told) == 1 and all(d["skipped"] for d in done[2:]) and mine.scaler.get_scale() == 2.0**16
        mine.start_epoch()
        assert mine.training_step(net, *a_batch(), LOSS, opt)["fallback"]
    else:
        assert not told and [d["precision"] for d in done[2:]] == ["bfloat16"] * 2 and done[3]["stepped"] and not mine.scaler.is_enabled()
    stats = mine.get_amp_stats()
    assert stats["fp32_fallbacks"] == (3 if beyond == "warn" else 2) and stats["fp32_fallback_ratio"] == stats["fp32_fallbacks"] / stats["total_steps"]


def test_errors_that_speak_of_overflow():
    class Raises(Net):
        text = "value overflow in layer"

        def forward(self, x):
            y = super().forward(x)
            if self.dtypes[-1] is ampc.float16:
                raise RuntimeError(self.text)
            return y
    mine, _, _ = setup()
    net = Raises().to(DEVICE)
    opt = ampc.optim.SGD(net.parameters(), lr=0.1)
    done = mine.training_step(net, *a_batch(), LOSS, opt)
    assert done["fallback"] and done["stepped"]
    net.text = "shapes do not fit"
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        mine.training_step(net, *a_batch(), LOSS, opt)
    mine, _, _ = setup(AMPConfig(enable_fallback_to_fp32=False))
    net.text = "overflow"
    with pytest.raises(RuntimeError, match="overflow"):
        mine.training_step(net, *a_batch(), LOSS, opt)


@pytest.mark.parametrize("beyond", ["warn", "bfloat16"])
@pytest.mark.parametrize("most", [0, 2])
def test_errors_of_overflow_beyond_the_limit_do_not_end_training(beyond, most):
    class Raises(Net):
        def forward(self, x):
            y = super().forward(x)
            if self.dtypes[-1] is not ampc.float32:
                raise RuntimeError("value overflow in layer")
            return y
    mine, _, _ = setup(AMPConfig(max_fp32_fallbacks=most), on_too_many_fallbacks=beyond)
    net = Raises().to(DEVICE)
    opt = ampc.optim.SGD(net.parameters(), lr=0.01)
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "TrainingOptimizer")
        done = [mine.training_step(net, *a_batch(), LOSS, opt) for _ in range(5)]
    assert all(d["precision"] == "float32" and d["fallback"] and d["stepped"] for d in done)
    assert sum("has reached max_fp32_fallbacks" in str(w.message) for w in caught) == (beyond == "warn")
    assert mine.get_amp_stats()["fp32_fallbacks"] == 5


def test_the_log_says_float32_only_where_it_was_tried(caplog):
    mine, net, opt = setup(AMPConfig(enable_fallback_to_fp32=False), boost=1e4)
    assert mine.training_step(net, *a_batch(), LOSS, opt)["skipped"]
    assert "not finite in float16, and was not computed in float32" in caplog.text and "either" not in caplog.text


def test_the_criterion_runs_once_a_step_and_the_model_for_few_shapes():
    mine, net, opt = setup(AMPConfig(init_scale=64.0))
    calls, shapes = [], module.SHAPES + 4

    def counted(output, target):
        calls.append(output.dtype)
        return LOSS(output, target)
    for size in range(2, 2 + shapes):
        x, y = a_batch()
        mine.training_step(net, x[:size], y[:size], counted, opt)
    assert len(calls) == shapes and len(mine.get_amp_stats()["memory_savings"]) == module.SHAPES
    assert net.dtypes.count(ampc.float32) <= module.SHAPES


def test_skipped_steps_in_a_row_end_in_a_float32_step():
    mine, net, opt = setup(AMPConfig(init_scale=2.0**100, backoff_factor=0.5))
    done = [mine.training_step(net, *a_batch(), LOSS, opt) for _ in range(module.SKIPPED_IN_A_ROW + 1)]
    assert [d["skipped"] for d in done[:-1]] == [True] * module.SKIPPED_IN_A_ROW and done[-1]["precision"] == "float32" and done[-1]["fallback"]
    assert mine.get_amp_stats()["skipped_steps"] >= 4


def test_a_loss_that_is_bad_in_float32_too_leaves_the_parameters_alone(caplog):
    for amp in (AMPConfig(), AMPConfig(dtype="bfloat16"), AMPConfig(enabled=False)):
        mine, net, opt = setup(amp)
        before = [p.tolist() for p in net.parameters()]
        x, y = a_batch()
        done = mine.training_step(net, x, y * math.nan, LOSS, opt)
        assert done["skipped"] and [p.tolist() for p in net.parameters()] == before
        assert mine.training_step(net, x, y, LOSS, opt)["stepped"]
    assert "not finite, in float32 either" in caplog.text


# -- statistics -------------------------------------------------------------------------------------------------


def test_statistics():
    mine, net, opt = setup(AMPConfig(init_scale=64.0, growth_interval=1))
    for _ in range(3):
        mine.training_step(net, *a_batch(), LOSS, opt)
    stats = mine.get_amp_stats()
    assert stats["scaler_scale"] == [64.0, 128.0, 256.0] and (stats["min_scaler_scale"], stats["max_scaler_scale"]) == (64.0, 256.0)
    assert stats["avg_scaler_scale"] == pytest.approx(448 / 3) and stats["amp_usage_ratio"] == 1 and stats["amp_enabled"]
    stats["scaler_scale"].clear()
    assert len(mine.get_amp_stats()["scaler_scale"]) == 3
    mine.reset_amp_stats()
    assert mine.get_amp_stats()["total_steps"] == 0 and mine.scaler.get_scale() == 512.0
    mine, net, opt = setup(AMPConfig(track_amp_stats=False))
    mine.training_step(net, *a_batch(), LOSS, opt)
    assert mine.get_amp_stats()["scaler_scale"] == mine.get_amp_stats()["memory_savings"] == [] and mine.get_amp_stats()["amp_steps"] == 1


def test_memory_saved_is_what_the_allocator_counts():
    """Activations of a deep model on a large batch in 16 bits are half of float32's; measuring changes no number."""
    net = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(64, 64), nn.GELU())], nn.Dropout(0.5), nn.Linear(64, 1)).to(DEVICE)
    x, y = ampc.randn(4096, 64, device=DEVICE), ampc.randn(4096, 1, device=DEVICE)
    losses = []
    for track in (True, False):
        ampc.manual_seed(3)
        mine = TrainingOptimizer(AMPConfig(dtype="bfloat16", track_amp_stats=track))
        losses.append(mine.training_step(net, x, y, LOSS, ampc.optim.SGD(net.parameters(), lr=0.0))["loss"])
        if track:
            (saved,) = mine.get_amp_stats()["memory_savings"]
    one = 4096 * 64 * 2 / 2**20  # MB that a 16-bit activation of a layer is smaller
    assert losses[0] == losses[1] and 5 * one < saved < 16 * one


# -- live configuration, resuming ---------------------------------------------------------------------------------


def test_a_new_configuration_holds_from_the_next_step_on():
    mine, net, opt = setup(AMPConfig(init_scale=256.0), gradient_accumulation_steps=2)
    mine.training_step(net, *a_batch(), LOSS, opt)
    mine.update_amp_config(AMPConfig(dtype="bfloat16", init_scale=256.0))
    second, third = (mine.training_step(net, *a_batch(), LOSS, opt)["precision"] for _ in range(2))
    assert (second, third) == ("float16", "bfloat16")  # the step's micro-batches stay together
    mine, net, opt = setup(AMPConfig(init_scale=256.0, growth_interval=1))
    mine.training_step(net, *a_batch(), LOSS, opt)
    mine.update_amp_config(AMPConfig(init_scale=256.0, growth_interval=1, max_fp32_fallbacks=5))
    assert mine.training_step(net, *a_batch(), LOSS, opt)["scale"] == 512.0 and mine.amp_config.max_fp32_fallbacks == 5  # the scale goes on
    with pytest.raises(TypeError, match="expected an AMPConfig, got dict"):
        mine.update_amp_config({"dtype": "float16"})


def test_a_run_is_resumed_bit_for_bit(tmp_path):
    batches = [a_batch() for _ in range(12)]

    def fresh():
        mine, net, opt = setup(AMPConfig(growth_interval=3), gradient_accumulation_steps=2)
        return mine, net, opt, ampc.optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)

    def go(run, some):
        mine, net, opt, schedule = run
        found = mine.train_epoch(net, some, LOSS, opt, scheduler=schedule, progress=False)
        return found, [p.tolist() for p in net.parameters()], net.norm.running_var.tolist(), schedule.get_last_lr(), mine.get_amp_stats()["scaler_scale"]
    run = fresh()
    go(run, batches[:6])
    run[0].save_checkpoint(tmp_path / "run", *run[1:])
    want = go(run, batches[6:])
    assert want[0]["steps"] == 3 and want[0]["skipped"] == 0
    ampc.manual_seed(99)
    again = fresh()
    again[0].load_checkpoint(tmp_path / "run", *again[1:])
    assert go(again, batches[6:]) == want
    run[0].training_step(run[1], *batches[0], LOSS, run[2])
    with pytest.raises(RuntimeError, match="1 of 2 micro-batches are accumulated"):
        run[0].save_checkpoint(tmp_path / "amid", *run[1:])
    ampc.save({"a": 1}, tmp_path / "other")
    with pytest.raises(ValueError, match="was not written by save_checkpoint"):
        again[0].load_checkpoint(tmp_path / "other", *again[1:])


def test_performance_optimizer():
    p = create_performance_optimizer(PerformanceConfig(amp_config=AMPConfig(dtype="bfloat16", sync_batch_norm=True), optimization_level="ultra", max_grad_norm=1.0))
    assert isinstance(p, PerformanceOptimizer)
    net = Net().to(DEVICE)
    p.training_step(net, *a_batch(), LOSS, ampc.optim.SGD(net.parameters(), lr=0.1))
    status = p.get_optimization_status()
    assert status["config"] == {"optimization_level": "ultra", "mixed_precision": True, "amp_dtype": "bfloat16", "amp_tf32": True,
                                "gradient_accumulation_steps": 1, "max_grad_norm": 1.0}
    assert status["gradient_accumulation_status"]["optimizer_steps"] == 1 and "sync_batch_norm" in status["inactive"]
    assert f"{p.get_amp_stats()['amp_usage_ratio']:.2%}" == "100.00%"
    p.reset_amp_stats()
    p.update_amp_config(AMPConfig(dtype="float16"))
    assert p.get_optimization_status()["config"]["amp_dtype"] == "float16" and p.get_amp_stats()["total_steps"] == 0
    assert create_performance_optimizer().config.optimization_level is OptimizationLevel.ADVANCED


def test_an_epoch_begins_without_the_gradients_of_another_loop():
    def trained(leftover):
        ampc.manual_seed(0)
        net = ampc.nn.Linear(2, 1)
        optimizer = ampc.optim.SGD(net.parameters(), lr=0.1)
        if leftover:
            net(ampc.ones(4, 2)).sum().backward()
        ampc.training.TrainingOptimizer(ampc.training.AMPConfig(dtype="bfloat16")).train_epoch(
            net, [(ampc.ones(4, 2), ampc.ones(4, 1))], ampc.nn.MSELoss(), optimizer, progress=False)
        return [p.tolist() for p in net.parameters()]

    assert trained(True) == trained(False)
