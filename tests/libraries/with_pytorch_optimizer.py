"""pytorch_optimizer: every optimizer of it that torch runs here, each for some steps on a small network."""

import numpy as np
import torch
from start import fill, main, normal, script


def network():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


# Why an optimizer takes no part.
LEFT_OUT = {"demo": "it wants several processes", "distributedmuon": "it wants several processes", "lomo": "it has a loop of its own", "adalomo": "it has a loop of its own",
            "lbfgs": "it is torch.optim.LBFGS", **dict.fromkeys(("bsam", "adahessian", "sophiah", "gravity", "kron", "magma"), "it draws at random")}
# Those that orthogonalise matrices in bfloat16.
ROUND = ("adago", "adamuon", "muon", "muonclip", "normuon", "scion", "scionlight", "spectralsphere")


def made(name, model):
    """The optimizer as the package's own factory makes it; Muon's family wants groups of parameters with a mark."""
    from pytorch_optimizer import create_optimizer, load_optimizer

    if "muon" in name or name == "adago":
        matrices = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() < 2]
        return load_optimizer(name)([{"params": matrices, "use_muon": True}, {"params": others, "use_muon": False}], lr=1e-3)
    if name == "spectralsphere":
        return load_optimizer(name)([p for p in model.parameters() if p.dim() == 2], lr=1e-3)
    return create_optimizer(model, name, lr=1e-3, **({"num_iterations": 20} if name == "ranger21" else {}))


def train_with(name, seed, steps=20):
    model = fill(network(), seed)
    optimizer = made(name, model)
    rng, losses = np.random.default_rng(seed), []
    for _ in range(steps):
        x = normal(rng, 16, 6)

        loss = ((model(x) - x.prod(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(*[lambda loss=loss: float(loss)] if name == "alig" else [])
        losses.append(loss.item())
    return losses


def of(seed, first, last):
    from pytorch_optimizer import get_supported_optimizers

    names = [n for n in sorted(get_supported_optimizers()) if first <= n[0] <= last and n not in LEFT_OUT and n not in ROUND]
    return [x for name in names for x in train_with(name, seed)]


@script("pytorch_optimizer", "a2grad to avagrad")
def a(seed):
    return of(seed, "a", "a")


@script("pytorch_optimizer", "Muon and its kin", rounding="bfloat16")
def muon(seed):
    return [x for name in ROUND for x in train_with(name, seed)]


@script("pytorch_optimizer", "bcos to lorarite")
def b_to_l(seed):
    return of(seed, "b", "l")


@script("pytorch_optimizer", "madgrad to racs")
def m_to_r(seed):
    return of(seed, "m", "r")


@script("pytorch_optimizer", "sara to yogi")
def s_to_y(seed):
    return of(seed, "s", "y")


if __name__ == "__main__":
    main()
