"""Default precision, autocast, and autocast with a GradScaler: time and peak memory of the same training.

    python examples/recipe.py                  # seconds: layers of 512
    python examples/recipe.py --size 4096 --batch 512 --batches 50 --epochs 3
"""

import argparse
import time

import ampc as torch


def make_model(size, layers):
    parts = [part for _ in range(layers - 1) for part in (torch.nn.Linear(size, size), torch.nn.ReLU())]
    return torch.nn.Sequential(*parts, torch.nn.Linear(size, size))


def train(name, data, targets, args, amp, scaled):
    torch.manual_seed(0)
    net = make_model(args.size, args.layers).to(args.device)
    opt = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler, loss_fn = torch.amp.GradScaler(args.device, enabled=scaled), torch.nn.MSELoss()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for x, y in zip(data, targets):
            with torch.autocast(args.device, dtype=torch.float16, enabled=amp):
                output = net(x)
                loss = loss_fn(output, y)
            assert output.dtype is (torch.float16 if amp else torch.float32) and loss.dtype is torch.float32
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    torch.cuda.synchronize()
    seconds, peak = time.perf_counter() - begin, torch.cuda.max_memory_allocated()
    print(f"{name:<18} {seconds:7.2f} s  {peak / 1e6:8.1f} MB  loss {loss.item():.6f}")
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("size", 512), ("layers", 3), ("batch", 128), ("batches", 8), ("epochs", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    args.device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    data, targets = ([torch.randn(args.batch, args.size, device=args.device) for _ in range(args.batches)] for _ in range(2))
    plain = train("default precision", data, targets, args, amp=False, scaled=False)
    half = train("autocast", data, targets, args, amp=True, scaled=False)
    scaled = train("with GradScaler", data, targets, args, amp=True, scaled=True)
    assert abs(half - plain) < 1e-2 * plain and abs(scaled - plain) < 1e-2 * plain


if __name__ == "__main__":
    main()
