"""Public packages, as they are, each trained for some steps: `python programs.py NAME SEED` prints the losses as JSON. With `float64` behind
it, the programs that take their parameters and data from here compute in that.

Run under torch (`python programs.py ...`) and under ampc (`ampc run programs.py ...`), from the same first values, which come
from NumPy. tools/compatibility.py does both and compares."""

import json
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

REAL = torch.float64 if sys.argv[3:] == ["float64"] else torch.float32


def same_start(module, seed):
    """Parameters drawn by NumPy: both libraries begin with the same numbers. Those that begin as 1 or 0 stay near that."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for _, p in sorted(module.named_parameters()):
            fan = max(int(np.prod(p.shape[1:])), 1)
            values = rng.standard_normal(tuple(p.shape)) * (0.02 if p.dim() < 2 else 1 / np.sqrt(fan))
            if p.dim() < 2 and float(p.detach().mean()) > 0.9:
                values = values + 1
            p.copy_(torch.from_numpy(values.astype(np.float32)))
    return module.to(REAL)


def batches(seed, size, kind="MNIST", count=None):
    from torch.utils.data import DataLoader, Subset
    from torchvision import datasets, transforms

    data = getattr(datasets, kind)(train=True, transform=transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.3], [0.35]), lambda x: x.to(REAL)]))
    order = np.random.default_rng(seed).permutation(len(data)).tolist()
    return DataLoader(Subset(data, order[: None if count is None else count * size]), batch_size=size, shuffle=False)


def classify(model, seed, kind="MNIST", size=32, steps=12, lr=1e-3):
    same_start(model, seed)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=lr), []
    for x, y in batches(seed, size, kind, steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def vit(seed):
    from vit_pytorch import ViT

    return classify(ViT(image_size=28, patch_size=7, num_classes=10, dim=64, depth=3, heads=4, mlp_dim=128, channels=1), seed)


def simple_vit(seed):
    from vit_pytorch.simple_vit import SimpleViT

    return classify(SimpleViT(image_size=28, patch_size=7, num_classes=10, dim=64, depth=2, heads=4, mlp_dim=128, channels=1), seed)


def resnet(seed):
    from resnet_pytorch import ResNet

    return classify(ResNet.from_name("resnet18", override_params={"num_classes": 10}), seed, "CIFAR10", 8, 6)


def gpt(seed):
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=64, max_seq_len=64, attn_layers=Decoder(dim=64, depth=3, heads=4, attn_flash=True)))
    same_start(model, seed)
    optimizer, losses, rng = torch.optim.AdamW(model.parameters(), lr=3e-3), [], np.random.default_rng(seed)
    for _ in range(15):
        starts = rng.integers(0, 64, (8, 1))
        tokens = torch.from_numpy((starts + np.arange(64) * (1 + starts % 3)) % 64)
        loss = model(tokens)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


def unet(seed):
    from unet import UNet2D

    model = same_start(UNet2D(in_channels=1, out_classes=2, num_encoding_blocks=3, out_channels_first_layer=8, normalization="batch", padding=1,
                              upsampling_type="linear"), seed)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for x, _ in batches(seed, 8, "MNIST", 8):
        target = (x[:, 0] > 0).long()  # where the digit is
        loss = F.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def conv_lstm(seed):
    from conv_lstm.conv_lstm import ConvLSTMCell

    cell, head = ConvLSTMCell(1, 8, 3, True), nn.Conv2d(8, 1, 1)
    model = same_start(nn.ModuleList([cell, head]), seed)
    optimizer, losses = torch.optim.RMSprop(model.parameters(), lr=1e-3), []
    for x, _ in batches(seed, 8, "MNIST", 8):
        h = c = torch.zeros(8, 8, 28, 28)
        loss = 0.0
        for shift in range(4):  # a digit that moves: the next picture is to be told
            h, c = cell(torch.roll(x, shift, 3), (h, c))
            loss = loss + F.mse_loss(head(h), torch.roll(x, shift + 1, 3)) / 4
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def lstm_language_model(seed):
    from torchnlp.nn import LockedDropout, WeightDropLSTM

    embed, rnn, head = nn.Embedding(32, 32), WeightDropLSTM(32, 48, num_layers=2, weight_dropout=0.0), nn.Linear(48, 32)
    model = same_start(nn.ModuleList([embed, rnn, head, LockedDropout(0.0)]), seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    schedule, losses, rng = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5), [], np.random.default_rng(seed)
    state = None
    for _ in range(20):
        text = torch.from_numpy((rng.integers(0, 32, (1, 8)) + np.arange(25)[:, None] * 3) % 32)
        y, state = rnn(model[3](embed(text[:-1])), state)
        state = tuple(s.detach() for s in state)
        loss = F.cross_entropy(head(y).flatten(0, 1), text[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def seq2seq(seed):
    from torchnlp.nn import Attention

    embed, encoder, decoder = nn.Embedding(16, 32), nn.GRU(32, 32, batch_first=True, bidirectional=False), nn.GRU(32, 32, batch_first=True)
    attention, head = Attention(32), nn.Linear(32, 16)
    model = same_start(nn.ModuleList([embed, encoder, decoder, attention, head]), seed)
    optimizer, losses, rng = torch.optim.Adam(model.parameters(), lr=5e-3), [], np.random.default_rng(seed)
    for _ in range(20):
        lengths = np.sort(rng.integers(3, 9, 12))[::-1].copy()
        source = rng.integers(1, 16, (12, 8)) * (np.arange(8) < lengths[:, None])
        packed = nn.utils.rnn.pack_padded_sequence(embed(torch.from_numpy(source)), torch.from_numpy(lengths), batch_first=True)
        memory, state = encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(memory, batch_first=True, total_length=8)
        target = torch.from_numpy(source[:, ::-1].copy())  # the same backwards
        y, _ = decoder(embed(torch.cat([torch.zeros(12, 1, dtype=torch.long), target[:, :-1]], 1)), state)
        y, _ = attention(y.contiguous(), memory.contiguous())
        loss = F.cross_entropy(head(y).transpose(1, 2), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def gan(seed):
    """A critic with gradient penalty on the package's networks' parts."""
    from dcgan_pytorch import Discriminator, Generator

    made, critic = Generator.from_name("g-mnist"), Discriminator.from_name("d-mnist")
    same_start(made, seed), same_start(critic, seed + 1)
    g_step, d_step = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.9)) for m in (made, critic))
    losses, rng = [], np.random.default_rng(seed)
    for x, _ in batches(seed, 4, "MNIST", 3):
        real = F.interpolate(x, size=64)
        noise = torch.from_numpy(rng.standard_normal((4, 100, 1, 1)).astype(np.float32)).to(REAL)
        fake = made(noise)
        mixed = (real + (fake.detach() - real) * torch.from_numpy(rng.random((4, 1, 1, 1)).astype(np.float32)).to(REAL)).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
        d_loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
        d_step.zero_grad()
        d_loss.backward()
        d_step.step()
        g_loss = -critic(made(noise)).mean()
        g_step.zero_grad()
        g_loss.backward()
        g_step.step()
        losses += [d_loss.item(), g_loss.item()]
    return losses


def vae(seed):
    """The quantised kind."""
    from vector_quantize_pytorch import FSQ

    encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.GELU(), nn.Conv2d(16, 3, 3, 1, 1))
    decoder = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.GELU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))
    model = same_start(nn.ModuleList([encoder, decoder]), seed)
    quantise, optimizer, losses = FSQ([8, 6, 5]), torch.optim.AdamW(model.parameters(), lr=3e-3), []
    for x, _ in batches(seed, 16, "MNIST", 15):
        codes, _ = quantise(encoder(x))
        loss = F.l1_loss(decoder(codes), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def contrastive(seed):
    from info_nce import InfoNCE

    net = same_start(nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 16)), seed)
    loss_fn, optimizer, losses = InfoNCE(temperature=0.2), torch.optim.Adam(net.parameters(), lr=1e-3), []
    for x, _ in batches(seed, 32, "MNIST", 15):
        loss = loss_fn(net(x), net(torch.roll(x, 1, 3)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def metric(seed):
    from pytorch_metric_learning.losses import NTXentLoss

    net = same_start(nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 16)), seed)
    loss_fn, optimizer, losses = NTXentLoss(temperature=0.3), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
    for x, y in batches(seed, 32, "MNIST", 12):
        loss = loss_fn(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def lbfgs(seed):
    """A network of sines, fitted to a picture by L-BFGS."""
    from siren_pytorch import SirenNet

    net = SirenNet(dim_in=2, dim_hidden=32, dim_out=1, num_layers=2, w0_initial=10.0)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for _, p in sorted(net.named_parameters()):
            p.copy_(torch.from_numpy((rng.uniform(-1, 1, tuple(p.shape)) * 0.1).astype(np.float32)))
    net = net.double()
    (x, _) = next(iter(batches(seed, 1)))
    place = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 28), torch.linspace(-1, 1, 28), indexing="ij"), -1).view(-1, 2).double()
    value = x.view(-1, 1).double()
    optimizer, losses = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=10, history_size=10, line_search_fn="strong_wolfe"), []
    for _ in range(5):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(net(place), value)
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure)))
    return losses


def ode(seed):
    """A neural differential equation."""
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t, y):
            return self.net(y**3)

    field = same_start(Field(), seed).double()
    times = torch.linspace(0.0, 2.0, 9).double()
    with torch.no_grad():
        want = odeint(lambda t, y: (y**3) @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]]).double(), torch.tensor([[2.0, 0.0]]).double(), times, method="dopri5")
    optimizer, losses = torch.optim.RMSprop(field.parameters(), lr=1e-2), []
    for _ in range(6):
        loss = (odeint(field, want[0], times, method="rk4") - want).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def scaler(seed):
    """A training helper that holds autocast and the scaler itself."""
    from ignite.engine import Events, create_supervised_trainer

    net = same_start(nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)), seed)
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.05), []
    trainer = create_supervised_trainer(net, optimizer, F.cross_entropy, amp_mode="amp", scaler=True)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
    trainer.run(batches(seed, 32, "MNIST", 15), max_epochs=1)
    return losses


def dqn(seed):
    """Deep Q-learning on CartPole; what it tries at random comes from NumPy."""
    from stable_baselines3 import DQN

    agent = DQN("MlpPolicy", "CartPole-v1", learning_rate=1e-3, learning_starts=64, buffer_size=2000, batch_size=32, train_freq=4, seed=seed, device="cpu",
                policy_kwargs={"net_arch": [32, 32]}, target_update_interval=100)
    same_start(agent.policy, seed)
    agent.learn(300)
    held = agent.replay_buffer.sample(64)
    with torch.no_grad():
        values = agent.q_net(held.observations)
    return [float(agent.num_timesteps), *[float(p.detach().abs().mean()) for p in agent.q_net.parameters()], values.mean().item()]


PROGRAMS = {  # name: (what, package)
    "vit": (vit, "ViT", "vit-pytorch"), "simple_vit": (simple_vit, "SimpleViT", "vit-pytorch"), "resnet": (resnet, "ResNet-18", "resnet-pytorch"),
    "gpt": (gpt, "GPT-like decoder", "x-transformers"), "unet": (unet, "U-Net", "unet"), "conv_lstm": (conv_lstm, "convolutional LSTM", "conv-lstm"),
    "lstm": (lstm_language_model, "LSTM language model", "pytorch-nlp"), "seq2seq": (seq2seq, "seq2seq with attention, packed sequences", "pytorch-nlp"),
    "gan": (gan, "GAN with gradient penalty", "dcgan-pytorch"), "vae": (vae, "autoencoder with quantised codes", "vector-quantize-pytorch"),
    "contrastive": (contrastive, "contrastive loss (InfoNCE)", "info-nce-pytorch"),
    "metric": (metric, "contrastive loss by labels (NT-Xent)", "pytorch-metric-learning"), "lbfgs": (lbfgs, "L-BFGS, a network of sines", "siren-pytorch"),
    "ode": (ode, "neural differential equation", "torchdiffeq"), "scaler": (scaler, "trainer with autocast and scaler inside", "pytorch-ignite"), "dqn": (dqn, "reinforcement learning (DQN)", "stable-baselines3"),
}

if __name__ == "__main__":
    torch.manual_seed(int(sys.argv[2]))
    print(json.dumps(PROGRAMS[sys.argv[1]][0](int(sys.argv[2]))))
