"""One script of sharded training, for torch on gloo and for ampc: ``ampc run sharded_judge.py FOLDER ampc`` in each process, or ``python ... torch``,
which starts both. Each process writes its losses, the norms of its gradients, the bytes of its optimizer's state and the final values to FOLDER."""

import json
import os
import socket
import sys

import numpy as np

WHATS = ("zero", "zero_views", "fully_shard", "fully_shard_bfloat16", "join")


def values(shape, seed):
    return (np.random.default_rng(seed).normal(size=shape) / np.sqrt(shape[-1])).astype("f4")


def net(torch):
    class Block(torch.nn.Module):
        def __init__(self, width, hidden):
            super().__init__()
            self.norm, self.up, self.down = torch.nn.LayerNorm(width), torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, width)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    model = torch.nn.Sequential(Block(8, 13), Block(8, 13), torch.nn.Linear(8, 3))
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(torch.tensor(values(p.shape, i)))
    return model


def state_bytes(torch, optimizer):
    """Of the moments; steps are counted elsewhere."""
    tensors = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t) and t.ndim]
    return sum(t.numel() * t.element_size() for t in (t.to_local() if hasattr(t, "to_local") else t for t in tensors))


def train(torch, what, rank, size):
    from torch.distributed.algorithms.join import Join
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model, losses, norms, steps = net(torch), [], [], 10
    context = None
    if what.startswith("fully_shard"):
        dtypes = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if "bfloat16" in what else {}
        for block in list(model)[:2]:
            fully_shard(block, mp_policy=MixedPrecisionPolicy(**dtypes))
        fully_shard(model, mp_policy=MixedPrecisionPolicy(**dtypes, output_dtype=torch.float32))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        held = optimizer
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=what == "join")
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=what == "zero_views", lr=0.02)
        held = optimizer.optim
    if what == "join":  # with an optimizer that steps in the loop alone: torch's joined ranks keep their last gradients
        optimizer = held = torch.optim.AdamW(model.parameters(), lr=0.02)
        steps, context = 4 + 3 * rank, Join([model], divide_by_initial_world_size=False)
        context.__enter__()
    for step in range(steps):
        x, y = torch.tensor(values((16, 8), 100 + step))[rank::size], torch.tensor(np.random.default_rng(step).integers(0, 3, 16))[rank::size]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.8)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        optimizer.step()
        losses.append(loss.item()), norms.append(norm.item())
    if context is not None:
        context.__exit__(None, None, None)
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return {"losses": losses, "norms": norms, "bytes": state_bytes(torch, held), "values": np.concatenate([p.detach().numpy().reshape(-1) for p in full]).tolist()}


def run(torch, folder, name, rank, **options):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2, **options)
    found = {what: train(torch, what, rank, 2) for what in WHATS}
    with open(f"{folder}/{name}{rank}.json", "w") as f:
        json.dump(found, f)
    torch.distributed.destroy_process_group()


def under_torch(rank, folder, port):
    import torch

    torch.set_num_threads(1)
    run(torch, folder, "torch", rank, init_method=f"tcp://127.0.0.1:{port}")
    os._exit(0)  # gloo's threads may end with an abort after all is done


if __name__ == "__main__":
    folder, name = sys.argv[1:]
    if name == "torch":
        import torch.multiprocessing

        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        torch.multiprocessing.spawn(under_torch, (folder, port), 2)
    else:
        import torch  # which `ampc run` makes ampc

        run(torch, folder, "ampc", int(os.environ["RANK"]))
