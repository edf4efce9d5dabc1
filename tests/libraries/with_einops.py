"""einops: its functions and layers in a mixer."""

import torch
from start import main, pictures, script, train


@script("einops", "layers, rearrange, reduce, einsum, pack")
def mixer(seed):
    from einops import einsum, pack, rearrange, reduce, repeat, unpack
    from einops.layers.torch import EinMix, Rearrange, Reduce

    class Mixer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cut = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
            self.enter = EinMix("b t i -> b t o", weight_shape="i o", bias_shape="o", i=48, o=24)
            self.across = EinMix("b t c -> b u c", weight_shape="t u", t=16, u=16)
            self.first = torch.nn.Parameter(torch.zeros(24))
            self.out, self.head = Reduce("b t c -> b c", "mean"), torch.nn.Linear(24, 4)

        def forward(self, x):
            x = torch.nn.functional.gelu(self.enter(self.cut(x)))
            x = x + self.across(x)
            x, shapes = pack([repeat(self.first, "c -> b c", b=len(x)), x], "b * c")
            first, x = unpack(x, shapes, "b * c")
            weight = einsum(x, first, "b t c, b c -> b t").softmax(-1)
            x = x * rearrange(weight, "b t -> b t 1") + reduce(x, "b (t two) c -> b t c", "max", two=2).repeat_interleave(2, 1)
            return self.head(self.out(x))

    net = Mixer()

    def loss_of(rng):
        x, y = pictures(rng, 8, 3, 16, 16)
        return torch.nn.functional.cross_entropy(net(x), y)

    return train(net, seed, loss_of, 30, lr=3e-3)


if __name__ == "__main__":
    main()
