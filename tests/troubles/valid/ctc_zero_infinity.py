"""CTC with zero_infinity, because some recordings are too short."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(12, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
criterion = nn.CTCLoss(zero_infinity=True)
lengths, target_lengths = torch.tensor([10, 3, 10]), torch.tensor([4, 5, 4])
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        log_probs = torch.log_softmax(model(torch.randn(10, 3, 12)).float(), -1)
    loss = criterion(log_probs, torch.randint(1, 8, (13,)), lengths, target_lengths)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
