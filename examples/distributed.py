"""Several processes train one model, each on its share of the batches: `ampc run --nproc 2 examples/distributed.py`.

Without `ampc run --nproc` it is one process. The model at the end is the same, but for rounding."""

import ampc as torch
import ampc.distributed as dist
from ampc.nn.parallel import DistributedDataParallel
from ampc.utils.data import DataLoader, TensorDataset
from ampc.utils.data.distributed import DistributedSampler

dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)  # the same data in every process; the sampler gives each its part
x = torch.randn(512, 16)
y = (x[:, :3].sum(1) > 0).long()
data = TensorDataset(x, y)
sampler = DistributedSampler(data, seed=0)
loader = DataLoader(data, batch_size=64 // size, sampler=sampler)

model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")

for epoch in range(4):
    sampler.set_epoch(epoch)  # another order in each epoch
    total = torch.zeros(())
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()  # gradients are averaged meanwhile
        scaler.step(optimizer)  # all processes make it, or all leave it out
        scaler.update()
        total += loss.detach()
    dist.all_reduce(total, dist.ReduceOp.AVG)
    if rank == 0:  # one of them speaks
        print(f"epoch {epoch}: loss {total.item() / len(loader):.3f} on {size} process{'es' if size > 1 else ''}")

weights = [torch.empty_like(model.module[0].weight) for _ in range(size)]
dist.all_gather(weights, model.module[0].weight.detach())
assert all(torch.equal(weights[0], other) for other in weights) and total.item() / len(loader) < 0.3
dist.destroy_process_group()
