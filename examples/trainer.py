"""TrainingOptimizer: a configuration in place of a loop's details, with a float32 fallback, statistics and exact resume."""

import logging
import os
import tempfile

import ampc as torch
from ampc.training import AMPConfig, PerformanceConfig, TrainingOptimizer

logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = PerformanceConfig(amp_config=AMPConfig(dtype="float16", growth_interval=20), gradient_accumulation_steps=2, max_grad_norm=1.0)
batches = [(torch.randn(32, 16, device=device), torch.randint(0, 4, (32,), device=device)) for _ in range(20)]
batches[7] = (batches[7][0] * 1e5, batches[7][1])  # overflows float16, and not float32
criterion = torch.nn.CrossEntropyLoss()


def fresh():
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(device)
    return TrainingOptimizer(config), model, torch.optim.AdamW(model.parameters(), lr=1e-2)


trainer, model, optimizer = fresh()
first = trainer.train_epoch(model, batches, criterion, optimizer)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "run.ampc")
    trainer.save_checkpoint(path, model, optimizer)
    second = trainer.train_epoch(model, batches, criterion, optimizer)
    resumed, its_model, its_optimizer = fresh()
    resumed.load_checkpoint(path, its_model, its_optimizer)
    assert resumed.train_epoch(its_model, batches, criterion, its_optimizer) == second
stats = trainer.get_amp_stats()
print(f"{stats['amp_usage_ratio']:.0%} of the steps in float16, {stats['fp32_fallbacks']} fallbacks, scale {stats['max_scaler_scale']:g}")
assert first["fallbacks"] == 1 and all(torch.equal(a, b) for a, b in zip(model.parameters(), its_model.parameters()))
