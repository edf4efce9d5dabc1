"""Small public packages, as they are, each trained for some steps. With --float64, those that take their parameters and data from
here compute in that."""

from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from start import SETTINGS, fill, main, script

DIGITS = Path(__file__).resolve().parents[2] / "ampc" / "data" / "digits.npz"


def batches(seed, size, channels=1, count=None):
    """Pairs of digits and labels: 1,500 digits of 8 x 8 in a drawn order, enlarged to MNIST's 28 x 28 or, with three channels, to CIFAR10's 32 x 32."""
    held = np.load(DIGITS)
    order = np.random.default_rng(seed).permutation(1500)[: None if count is None else count * size]
    side = np.arange(28 if channels == 1 else 32) * 8 // (28 if channels == 1 else 32)
    x = (held["images"].reshape(-1, 1, 8, 8)[order].astype(np.float32) / 16)[:, :, side][:, :, :, side].repeat(channels, 1)
    x, y = (torch.from_numpy(x) - 0.3) / 0.35, torch.from_numpy(held["labels"][order].astype(np.int64))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x.to(SETTINGS["dtype"]), y), batch_size=size)


def steps_of(loss_of, optimizer, data):
    """A step of the optimizer for each pair of the data; the losses."""
    losses = []
    for x, y in data:
        loss = loss_of(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def classify(model, seed, channels=1, size=32, steps=12, lr=1e-3):
    fill(model, seed)
    return steps_of(lambda x, y: F.cross_entropy(model(x), y), torch.optim.Adam(model.parameters(), lr=lr), batches(seed, size, channels, steps))


def embedding(seed):
    """A small network that gives 16 numbers of a digit."""
    return fill(nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 16)), seed)


@script("vit-pytorch", "ViT")
def vit(seed):
    from vit_pytorch import ViT

    return classify(ViT(image_size=28, patch_size=7, num_classes=10, dim=64, depth=3, heads=4, mlp_dim=128, channels=1), seed)


@script("vit-pytorch", "SimpleViT")
def simple_vit(seed):
    from vit_pytorch.simple_vit import SimpleViT

    return classify(SimpleViT(image_size=28, patch_size=7, num_classes=10, dim=64, depth=2, heads=4, mlp_dim=128, channels=1), seed)


@script("resnet-pytorch", "ResNet-18", of=("float64",))
def resnet(seed):
    from resnet_pytorch import ResNet

    return classify(ResNet.from_name("resnet18", override_params={"num_classes": 10}), seed, 3, 8, 6)


@script("x-transformers", "GPT-like decoder")
def gpt(seed):
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=64, max_seq_len=64, attn_layers=Decoder(dim=64, depth=3, heads=4, attn_flash=True)))
    fill(model, seed)
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


@script("unet", "U-Net", of=("float64",))
def unet(seed):
    from unet import UNet2D

    model = fill(UNet2D(in_channels=1, out_classes=2, num_encoding_blocks=3, out_channels_first_layer=8, normalization="batch", padding=1,
                              upsampling_type="linear"), seed)  # it learns where the digit is
    return steps_of(lambda x, y: F.cross_entropy(model(x), (x[:, 0] > 0).long()), torch.optim.Adam(model.parameters(), lr=1e-2), batches(seed, 8, 1, 8))


@script("conv-lstm", "convolutional LSTM")
def conv_lstm(seed):
    from conv_lstm.conv_lstm import ConvLSTMCell

    cell, head = ConvLSTMCell(1, 8, 3, True), nn.Conv2d(8, 1, 1)
    model = fill(nn.ModuleList([cell, head]), seed)

    def loss_of(x, y):
        h = c = torch.zeros(8, 8, 28, 28)
        loss = 0.0
        for shift in range(4):  # a digit that moves: the next picture is to be told
            h, c = cell(torch.roll(x, shift, 3), (h, c))
            loss = loss + F.mse_loss(head(h), torch.roll(x, shift + 1, 3)) / 4
        return loss

    return steps_of(loss_of, torch.optim.RMSprop(model.parameters(), lr=1e-3), batches(seed, 8, 1, 8))


@script("pytorch-nlp", "LSTM language model")
def lstm_language_model(seed):
    from torchnlp.nn import LockedDropout, WeightDropLSTM

    embed, rnn, head = nn.Embedding(32, 32), WeightDropLSTM(32, 48, num_layers=2, weight_dropout=0.0), nn.Linear(48, 32)
    model = fill(nn.ModuleList([embed, rnn, head, LockedDropout(0.0)]), seed)
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


@script("pytorch-nlp", "seq2seq with attention, packed sequences")
def seq2seq(seed):
    from torchnlp.nn import Attention

    embed, encoder, decoder = nn.Embedding(16, 32), nn.GRU(32, 32, batch_first=True, bidirectional=False), nn.GRU(32, 32, batch_first=True)
    attention, head = Attention(32), nn.Linear(32, 16)
    model = fill(nn.ModuleList([embed, encoder, decoder, attention, head]), seed)
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


@script("dcgan-pytorch", "GAN with gradient penalty", of=("float64",))
def gan(seed):
    """A critic with gradient penalty on the package's networks' parts."""
    from dcgan_pytorch import Discriminator, Generator

    made, critic = Generator.from_name("g-mnist"), Discriminator.from_name("d-mnist")
    fill(made, seed), fill(critic, seed + 1)
    g_step, d_step = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.9)) for m in (made, critic))
    losses, rng = [], np.random.default_rng(seed)
    for x, _ in batches(seed, 4, 1, 3):
        real = F.interpolate(x, size=64)
        noise = torch.from_numpy(rng.standard_normal((4, 100, 1, 1)).astype(np.float32)).to(SETTINGS["dtype"])
        fake = made(noise)
        mixed = (real + (fake.detach() - real) * torch.from_numpy(rng.random((4, 1, 1, 1)).astype(np.float32)).to(SETTINGS["dtype"])).requires_grad_()
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


@script("vector-quantize-pytorch", "autoencoder with quantised codes")
def vae(seed):
    """The quantised kind."""
    from vector_quantize_pytorch import FSQ

    encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.GELU(), nn.Conv2d(16, 3, 3, 1, 1))
    decoder = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.GELU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))
    model = fill(nn.ModuleList([encoder, decoder]), seed)
    quantise = FSQ([8, 6, 5])
    return steps_of(lambda x, y: F.l1_loss(decoder(quantise(encoder(x))[0]), x), torch.optim.AdamW(model.parameters(), lr=3e-3), batches(seed, 16, 1, 15))


@script("info-nce-pytorch", "contrastive loss (InfoNCE)")
def contrastive(seed):
    from info_nce import InfoNCE

    net, likeness = embedding(seed), InfoNCE(temperature=0.2)
    return steps_of(lambda x, y: likeness(net(x), net(torch.roll(x, 1, 3))), torch.optim.Adam(net.parameters(), lr=1e-3), batches(seed, 32, 1, 15))


@script("pytorch-metric-learning", "contrastive loss by labels (NT-Xent)")
def metric(seed):
    from pytorch_metric_learning.losses import NTXentLoss

    net, likeness = embedding(seed), NTXentLoss(temperature=0.3)
    return steps_of(lambda x, y: likeness(net(x), y), torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), batches(seed, 32, 1, 12))


@script("siren-pytorch", "L-BFGS, a network of sines")
def lbfgs(seed):
    """A network of sines, fitted to a picture by L-BFGS."""
    from siren_pytorch import SirenNet

    net = fill(SirenNet(dim_in=2, dim_hidden=32, dim_out=1, num_layers=2, w0_initial=10.0), seed, torch.float64)
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


@script("torchdiffeq", "neural differential equation")
def ode(seed):
    """A neural differential equation."""
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t, y):
            return self.net(y**3)

    field = fill(Field(), seed, torch.float64)
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


@script("pytorch-ignite", "trainer with autocast and scaler inside", rounding="bfloat16")
def scaler(seed):
    """A training helper that holds autocast and the scaler itself."""
    from ignite.engine import Events, create_supervised_trainer

    net = fill(nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)), seed)
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.05), []
    trainer = create_supervised_trainer(net, optimizer, F.cross_entropy, amp_mode="amp", scaler=True)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
    trainer.run(batches(seed, 32, 1, 15), max_epochs=1)
    return losses


@script("stable-baselines3", "reinforcement learning (DQN)")
def dqn(seed):
    """Deep Q-learning on CartPole; what it tries at random comes from NumPy."""
    from stable_baselines3 import DQN

    agent = DQN("MlpPolicy", "CartPole-v1", learning_rate=1e-3, learning_starts=64, buffer_size=2000, batch_size=32, train_freq=4, seed=seed, device="cpu",
                policy_kwargs={"net_arch": [32, 32]}, target_update_interval=100)
    fill(agent.policy, seed)
    agent.learn(300)
    held = agent.replay_buffer.sample(64)
    with torch.no_grad():
        values = agent.q_net(held.observations)
    return [float(agent.num_timesteps), *[float(p.detach().abs().mean()) for p in agent.q_net.parameters()], values.mean().item()]


if __name__ == "__main__":
    main()
