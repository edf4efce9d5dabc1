"""-1e9 is filled into bfloat16 scores, which have float32's range; float16 is nowhere."""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, head = nn.Embedding(20, 16), nn.Linear(16, 20)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
tokens = torch.randint(1, 20, (3, 5))
tokens[1] = 0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = embed(tokens)
        scores = torch.bmm(x, x.transpose(1, 2)).masked_fill((tokens == 0)[:, None, :], -1e9)
        loss = nn.functional.cross_entropy(head(torch.softmax(scores, -1) @ x).flatten(0, 1).float(), tokens.flatten())
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
