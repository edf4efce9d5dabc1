"""A recording is shorter than its transcript, so CTC has no alignment and its loss is infinite.

area: speech
cause: ctc-without-alignment
operator: ctc_loss
fix: zero_infinity
shows: nan loss
source: wenet-e2e/wenet PR#2299, pytorch/pytorch PR#16199, k2-fsa/icefall#580
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(12, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
lengths, target_lengths = torch.tensor([10, 3, 10]), torch.tensor([4, 5, 4])
targets = torch.randint(1, 8, (13,))
for step in range(2):
    x = torch.randn(10, 3, 12)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        log_probs = torch.log_softmax(model(x).float(), -1)
    loss = nn.functional.ctc_loss(log_probs, targets, lengths, target_lengths)  # broken here
    loss = nn.functional.ctc_loss(log_probs, targets, lengths, target_lengths, zero_infinity=True)  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
