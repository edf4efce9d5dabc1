"""safetensors: its functions for torch, in the middle of a training."""

import os
import tempfile

import torch
from start import main, pictures, script, train


@script("safetensors", "save_model, load_model, save_file, safe_open, metadata")
def files(seed):
    from safetensors import safe_open
    from safetensors.torch import load, load_file, load_model, save, save_file, save_model

    def make():
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 16), torch.nn.Linear(16, 16),
                                  torch.nn.Linear(16, 4))
        net[5].weight = torch.nn.Parameter(net[5].weight.detach().clone())
        return net

    def loss_of(rng):
        x, y = pictures(rng, 8, 3, 8, 8)
        return torch.nn.functional.cross_entropy(net(x), y)

    net = make()
    losses = train(net, seed, loss_of, 20)
    with tempfile.TemporaryDirectory() as folder:
        save_model(net, os.path.join(folder, "m.safetensors"))
        other = make()
        load_model(other, os.path.join(folder, "m.safetensors"))
        assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), other.state_dict().values()))
        kept = {"half": net[0].weight.detach().half(), "brain": net[0].weight.detach().bfloat16(), "whole": torch.arange(6).view(2, 3), "truth": torch.tensor([True, False])}
        save_file(kept, os.path.join(folder, "k.safetensors"), metadata={"made": "here"})
        back = load_file(os.path.join(folder, "k.safetensors"))
        assert all(torch.equal(back[n], t) and back[n].dtype == t.dtype for n, t in kept.items())
        with safe_open(os.path.join(folder, "k.safetensors"), "pt") as f:
            assert f.metadata() == {"made": "here"} and torch.equal(f.get_slice("whole")[:, 1:], kept["whole"][:, 1:])
        assert torch.equal(load(save(kept))["half"], kept["half"])
    net.load_state_dict(other.state_dict())
    return losses + [loss.item() for loss in [net[0].weight.detach().abs().sum(), back["brain"].float().sum()]]


if __name__ == "__main__":
    main()
