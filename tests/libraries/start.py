"""What the scripts share: first values and data from NumPy, a plain loop, and the table of scripts.

`python with_x.py NAME 0 1 2` trains the script NAME with each of the seeds and prints {seed: losses} as JSON. `--nudge 6e-8` moves
each first value up or down by this fraction, at random: two runs of one library then differ as much as rounding can make them."""

from __future__ import annotations

import argparse
import json
import warnings

import numpy as np
import torch

SCRIPTS: dict = {}
SETTINGS = {"nudge": 0.0, "draw": 0, "dtype": torch.float32}


def script(package, what, rounding="float32", of=()):
    """Enters a function of the seed that returns losses. ``rounding`` names the coarsest dtype that it computes in; a script with
    ``of=("float64",)`` can compute in that as well. tools/compatibility.py reads these lines by their syntax."""

    def enter(train):
        SCRIPTS[train.__name__] = train
        return train

    return enter


def fill(module, seed, dtype=None):
    """Parameters drawn by NumPy: both libraries begin with the same numbers. Those that begin as 1 or 0 stay near that."""
    module = module.to(dtype or SETTINGS["dtype"])
    rng, nudges = np.random.default_rng(seed), np.random.default_rng([seed, SETTINGS["draw"]])
    with torch.no_grad():
        for _, p in sorted(module.named_parameters()):
            fan = max(int(np.prod(p.shape[1:])), 1)
            values = rng.standard_normal(tuple(p.shape)) * (0.02 if p.dim() < 2 else 1 / np.sqrt(fan))
            if p.dim() < 2 and p.numel() and float(p.detach().mean()) > 0.9:
                values = values + 1
            p.copy_(nudged(values, nudges))
    return module


def nudged(values, nudges):
    """A tensor of float64: the values in float32, each moved up or down by the nudge that was asked for."""
    values = np.asarray(np.asarray(values, np.float32), np.float64)
    return torch.from_numpy(values * (1 + SETTINGS["nudge"] * nudges.choice([-1, 1], values.shape)))


def normal(rng, *shape):
    """A float32 tensor of normal numbers."""
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def whole(rng, low, high, *shape):
    """An int64 tensor of numbers from ``low`` to ``high - 1``."""
    return torch.from_numpy(rng.integers(low, high, shape))


def pictures(rng, *shape, classes=4):
    """Noise with a brighter quarter; which one is the label."""
    labels = rng.integers(0, classes, shape[0])
    x = rng.standard_normal(shape) * 0.5
    height, width = shape[2] // 2, shape[3] // 2
    for i, label in enumerate(labels):
        top, left = label // 2 % 2 * height, label % 2 * width
        x[i, :, top:top + height, left:left + width] += 1
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(labels)


def sentences(rng, count, length, words):
    """Sequences that go up by a constant; the next number can be told."""
    first = rng.integers(0, words, (count, 1))
    return torch.from_numpy((first + np.arange(length) * (1 + first % 3)) % words)


def train(model, seed, loss_of, steps=20, optimizer=None, lr=1e-3):
    """The plain loop: ``loss_of(rng)`` is the loss of a batch that it draws. Returns the losses."""
    fill(model, seed)
    optimizer = (optimizer or torch.optim.AdamW)(model.parameters(), lr=lr)
    rng, losses = np.random.default_rng(seed + 100), []
    for _ in range(steps):
        loss = loss_of(rng)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    """Runs one script of the file that calls this."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(SCRIPTS))
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--nudge", type=float, default=0.0)
    parser.add_argument("--nudges", type=int, default=0, help="so many runs with nudges after each plain one")
    parser.add_argument("--float64", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    SETTINGS["dtype"] = torch.float64 if args.float64 else torch.float32
    runs = {}
    for seed in args.seeds:
        runs[seed] = []
        for draw in range(args.nudges + 1):
            SETTINGS.update(draw=draw, nudge=args.nudge if draw else 0.0)
            torch.manual_seed(seed)
            runs[seed].append([float(x) for x in SCRIPTS[args.name](seed)])
    print(json.dumps(runs))
