"""The AMP recipe: the same network trained in default precision, under autocast, and with a scaler.

    python examples/recipe.py                 # ampc
    python examples/recipe.py --torch         # the same script on torch
"""

import argparse
import gc
import time

parser = argparse.ArgumentParser()
parser.add_argument("--torch", action="store_true", help="run on torch instead")
parser.add_argument("--size", type=int, default=512)
parser.add_argument("--batches", type=int, default=10)
args = parser.parse_args()

if args.torch:
    import torch
else:
    import ampc as torch

device = "cuda" if torch.cuda.is_available() else "cpu"


def make_model(size: int, layers: int = 3):
    parts = []
    for _ in range(layers - 1):
        parts += [torch.nn.Linear(size, size), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(size, size)).to(device)


data = [torch.randn(512, args.size, device=device) for _ in range(args.batches)]
targets = [torch.randn(512, args.size, device=device) for _ in range(args.batches)]
loss_fn = torch.nn.MSELoss()


def train(name: str, use_autocast: bool, use_scaler: bool, dtype) -> None:
    torch.manual_seed(0)
    net = make_model(args.size)
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler(device, enabled=use_scaler)
    gc.collect()
    begin = time.perf_counter()
    for x, y in zip(data, targets):
        with torch.autocast(device_type=device, dtype=dtype, enabled=use_autocast):
            loss = loss_fn(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    print(f"{name:<28} loss {loss.item():.4f}  {(time.perf_counter() - begin) / args.batches * 1e3:8.2f} ms a step  scale {scaler.get_scale():g}")


train("float32", False, False, torch.bfloat16)
train("bfloat16 autocast", True, False, torch.bfloat16)
train("float16 autocast + scaler", True, True, torch.float16)
