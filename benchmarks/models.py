"""Whole models, one training step each: forward, loss, backward, the optimizer's step. Written once for both libraries."""

from __future__ import annotations

from typing import Any, Callable


def lstm(T: Any) -> tuple:
    """Two layers of 256 units over 64 steps of 32 sequences, and a head over 64 classes at every step."""
    nn = T.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(256, 256, 2), nn.Linear(256, 64)

        def forward(self, x: Any) -> Any:
            return self.head(self.rnn(x)[0]).flatten(0, 1)

    model = Model()
    return model, T.optim.Adam(model.parameters(), lr=1e-3), T.randn(64, 32, 256), T.randint(0, 64, (64 * 32,))


def gpt(T: Any, width: int = 128, layers: int = 3, heads: int = 4, block: int = 128, batch: int = 16, vocabulary: int = 128) -> tuple:
    """A decoder of three blocks, 128 wide, over 16 sequences of 128 tokens (Radford et al. 2019)."""
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, heads, width // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.place(T.arange(tokens.shape[1], device=tokens.device))
            for each in self.blocks:
                x = each(x)
            return self.head(self.norm(x)).flatten(0, 1)

    model = Model()
    tokens = T.randint(0, vocabulary, (batch, block))
    return model, T.optim.AdamW(model.parameters(), lr=1e-3), tokens, T.randint(0, vocabulary, (batch * block,))


def resnet20(T: Any) -> tuple:
    """The residual network for 32 x 32 images with 20 layers (He et al. 2016), a batch of 32."""
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self, channels: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
            self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
            self.short = nn.Sequential()
            if stride != 1 or channels != out:
                self.short = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + self.short(x))

    stages, channels = [], 16
    for out, stride in ((16, 1), (32, 2), (64, 2)):
        for i in range(3):
            stages.append(Block(channels, out, stride if i == 0 else 1))
            channels = out
    stem, head = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    model = nn.Sequential(*stem, *stages, *head)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return model, optimizer, T.randn(32, 3, 32, 32), T.randint(0, 10, (32,))


def convnet(T: Any) -> tuple:
    """Two convolutions with batch norm, as beginners train on CIFAR-10; a batch of 64."""
    nn = T.nn
    parts = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
             nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    model = nn.Sequential(*parts)
    return model, T.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), T.randn(64, 3, 32, 32), T.randint(0, 10, (64,))


MODELS = {"lstm": lstm, "gpt": gpt, "resnet20": resnet20, "convnet": convnet}


def model_step(T: Any, name: str, low: bool) -> Callable[[], Any]:
    T.manual_seed(0)
    model, optimizer, x, y = MODELS[name](T)

    def step() -> None:
        optimizer.zero_grad()
        with T.autocast("cpu", dtype=T.bfloat16, enabled=low):
            loss = T.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step
