"""Real training: digits in three precisions, and agreement with torch from the same weights."""

import numpy as np
import pytest
from where import DEVICE

import ampc
from ampc.cli.demo import train
from ampc.data import load_digits, stratified_folds


@pytest.mark.slow
def test_five_fold_digits_in_three_precisions():
    images, labels = load_digits()
    means = {}
    for precision in ("float32", "bfloat16", "float16"):
        scores = []
        for k, (a, b) in enumerate(stratified_folds(labels, 5)):
            run = train(precision, (images[a], labels[a], images[b], labels[b]), seed=k)
            scores.append(run.accuracy)
            assert precision == "float16" or run.skipped == 0
        means[precision] = float(np.mean(scores))
    print(means)
    assert min(means.values()) >= 0.965
    assert abs(means["bfloat16"] - means["float32"]) <= 0.005 and abs(means["float16"] - means["float32"]) <= 0.005


def run_50(T, weights, x, y, dtype=None):
    net = T.nn.Sequential(T.nn.Linear(64, 128), T.nn.ReLU(), T.nn.Linear(128, 128), T.nn.GELU(), T.nn.LayerNorm(128), T.nn.Linear(128, 10))
    net.load_state_dict({k: T.tensor(v) for k, v in weights.items()})
    opt = T.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = T.amp.GradScaler("cpu", enabled=dtype == "float16")
    losses = []
    for i in range(50):
        rows = slice(i * 30 % 1500, i * 30 % 1500 + 64)
        opt.zero_grad()
        with T.autocast(DEVICE if T is ampc else "cpu", dtype=getattr(T, dtype or "bfloat16"), enabled=dtype is not None):
            loss = T.nn.functional.cross_entropy(net(T.tensor(x[rows])), T.tensor(y[rows]))
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        losses.append(loss.item())
    return np.array(losses)


@pytest.mark.parametrize(("dtype", "tolerance"), [(None, 1e-4), ("bfloat16", 0.012), ("float16", 0.005)])
def test_fifty_steps_as_torch(torch, dtype, tolerance):
    x, y = load_digits()
    ampc.manual_seed(4)
    first = ampc.nn.Sequential(ampc.nn.Linear(64, 128), ampc.nn.ReLU(), ampc.nn.Linear(128, 128), ampc.nn.GELU(), ampc.nn.LayerNorm(128), ampc.nn.Linear(128, 10))
    weights = {k: v.numpy(force=True).copy() for k, v in first.state_dict().items()}
    mine, theirs = run_50(ampc, weights, x, y, dtype), run_50(torch, weights, x, y, dtype)
    print(dtype, np.abs(mine - theirs).max())
    assert np.abs(mine - theirs).max() <= tolerance and mine[-1] < 0.5 * mine[0]


def test_recipe_script_runs_unchanged():
    """The AMP recipe's loop, small, with cuda spelled as scripts spell it."""
    torch = ampc
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_default_device(device)
    scaler = torch.cuda.amp.GradScaler(enabled=True)
    x, y = torch.randn(16, 32), torch.randn(16, 32)
    loss_fn = torch.nn.MSELoss()
    for _ in range(3):
        with torch.autocast(device_type=device, dtype=torch.float16, enabled=True):
            output = net(x)
            assert output.dtype is torch.float16
            loss = loss_fn(output, y)
            assert loss.dtype is torch.float32
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.1)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    assert scaler.get_scale() == 65536 and torch.cuda.max_memory_allocated() > 0


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", [None, ampc.bfloat16, ampc.float16])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_steps_after_the_first_ask_the_system_for_nothing(dtype, optimizer):
    """What one step allocates, the next finds in the allocator's cache, also of operands packed on the way."""
    nn = ampc.nn
    net = nn.Sequential(nn.Linear(96, 200), nn.GELU(), nn.LayerNorm(200), nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 10))
    opt, scaler = getattr(ampc.optim, optimizer)(net.parameters(), lr=1e-3), ampc.amp.GradScaler("cpu", enabled=dtype is ampc.float16)
    x, y = ampc.randn(256, 96), ampc.randint(0, 10, (256,))

    def step():
        opt.zero_grad()
        with ampc.autocast(DEVICE, dtype=dtype or ampc.bfloat16, enabled=dtype is not None):
            loss = ampc.nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()

    ampc._C._memory_trim()
    step()
    step()  # the first has no gradients to free and makes the optimizer's state
    asked = ampc._C._memory()["system_calls"]
    for _ in range(20):
        step()
    assert ampc._C._memory()["system_calls"] == asked
