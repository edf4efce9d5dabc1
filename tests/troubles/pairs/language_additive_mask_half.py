"""A padding mask is made in the scores' dtype: -1e9 is -inf in float16, and a sentence that is all padding has a softmax of nan.

area: language
cause: mask-beyond-half
operator: softmax | mul
fix: finfo | masked
shows: nan loss
source: huggingface/transformers#9295; NVIDIA/tacotron2#18 for the mask
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, query, key, head = nn.Embedding(50, 32), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 50)
model = nn.ModuleList([embed, query, key, head])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
tokens = torch.randint(1, 50, (4, 6))
tokens[3] = 0  # an empty sentence
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        scores = query(x) @ key(x).transpose(1, 2) / 32**0.5
        padding = (tokens == 0).to(scores.dtype)[:, None, :]
        scores = scores + padding * -1e9  # broken here
        scores = scores + padding * torch.finfo(scores.dtype).min / 2  # mended
        attended = torch.softmax(scores, dim=-1) @ x
        logits = head(attended)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
