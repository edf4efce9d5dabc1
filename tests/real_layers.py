"""The layers of networks that people train, at their real sizes, from the papers that describe them. Batches are what a laptop takes."""

from typing import Dict, Iterator, List, NamedTuple, Tuple, Union


class Convolution(NamedTuple):
    images: int
    channels: int
    outs: int
    size: Tuple[int, ...]
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1
    transposed: bool = False
    more: int = 0  # output padding


class Linear(NamedTuple):
    rows: int
    inputs: int
    outs: int


class BatchNorm(NamedTuple):
    images: int
    channels: int
    size: Tuple[int, ...]


class RowNorm(NamedTuple):
    kind: str  # layer or rms
    rows: int
    width: int


class Attention(NamedTuple):
    batch: int
    heads: int
    shared: int  # heads that read the same keys and values
    queries: int
    keys: int
    width: int
    mask: str = "none"


class LSTM(NamedTuple):
    sequences: int
    steps: int
    inputs: int
    units: int
    layers: int


class Rotary(NamedTuple):
    batch: int
    heads: int
    steps: int
    width: int


class SwiGLU(NamedTuple):
    rows: int
    inputs: int
    hidden: int


class MaxPool(NamedTuple):
    images: int
    channels: int
    size: int
    kernel: int
    stride: int
    padding: int


Layer = Union[Convolution, Linear, BatchNorm, RowNorm, Attention, LSTM, Rotary, SwiGLU, MaxPool]


def conv(images: int, channels: int, outs: int, size: int, kernel: int, stride: int = 1, groups: int = 1) -> Convolution:
    """Over images, padded so that stride 1 keeps their size."""
    return Convolution(images, channels, outs, (size, size), kernel, stride, kernel // 2, groups)


def normed(layers: List[Layer]) -> Iterator[Layer]:
    """Every convolution is followed by a batch norm."""
    for c in layers:
        yield c
        if isinstance(c, Convolution):
            spread = (c.stride if c.transposed else 1)
            yield BatchNorm(c.images, c.outs, tuple(n * spread if c.transposed else -(-n // c.stride) for n in c.size))


def resnet18() -> Iterator[Layer]:
    """He et al. 2015, table 1."""
    yield conv(8, 3, 64, 224, 7, 2)
    channels, size = 64, 56
    for width in (64, 128, 256, 512):
        stride = width // channels
        yield conv(8, channels, width, size, 3, stride)
        if stride > 1:
            yield conv(8, channels, width, size, 1, stride)
        channels, size = width, size // stride
        yield conv(8, width, width, size, 3)


def resnet50() -> Iterator[Layer]:
    """He et al. 2015, table 1: a block's first layer has its stride."""
    channels, size = 64, 56
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        yield conv(8, channels, width, size, 1, stride)
        yield conv(8, channels, 4 * width, size, 1, stride)
        channels, size = 4 * width, size // stride
        yield conv(8, width, width, size, 3)
        yield conv(8, width, channels, size, 1)
        yield conv(8, channels, width, size, 1)


def vgg16() -> Iterator[Layer]:
    """Simonyan and Zisserman 2014, configuration D."""
    channels, size = 3, 224
    for width in (64, 128, 256, 512, 512):
        yield conv(2, channels, width, size, 3)
        yield conv(2, width, width, size, 3)
        yield MaxPool(2, width, size, 2, 2, 0)
        channels, size = width, size // 2


def inverted(channels: int, hidden: int, outs: int, size: int, kernel: int, stride: int, squeezed: int) -> Iterator[Layer]:
    """Expansion, depthwise convolution, squeeze and excitation, projection."""
    if hidden != channels:
        yield conv(8, channels, hidden, size, 1)
    yield conv(8, hidden, hidden, size, kernel, stride, hidden)
    if squeezed:
        yield Linear(8, hidden, squeezed)
        yield Linear(8, squeezed, hidden)
    yield conv(8, hidden, outs, size // stride, 1)


def mobilenet_v3() -> Iterator[Layer]:
    """Howard et al. 2019, table 1 (large)."""
    yield conv(8, 3, 16, 224, 3, 2)
    channels, size = 16, 112
    for kernel, hidden, outs, excited, stride in (
            (3, 16, 16, 0, 1), (3, 64, 24, 0, 2), (3, 72, 24, 0, 1), (5, 72, 40, 1, 2), (5, 120, 40, 1, 1), (3, 240, 80, 0, 2), (3, 200, 80, 0, 1),
            (3, 184, 80, 0, 1), (3, 480, 112, 1, 1), (3, 672, 112, 1, 1), (5, 672, 160, 1, 2), (5, 960, 160, 1, 1)):
        yield from inverted(channels, hidden, outs, size, kernel, stride, excited * max(8, hidden // 4 // 8 * 8))
        channels, size = outs, size // stride
    yield conv(8, 160, 960, 7, 1)


def efficientnet_b0() -> Iterator[Layer]:
    """Tan and Le 2019, table 1."""
    yield conv(8, 3, 32, 224, 3, 2)
    channels, size = 32, 112
    for kernel, grow, outs, stride, layers in ((3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (5, 6, 40, 2, 2), (3, 6, 80, 2, 3), (5, 6, 112, 1, 3), (5, 6, 192, 2, 4),
                                              (3, 6, 320, 1, 1)):
        for step in (stride, *[1] * (layers - 1)):
            yield from inverted(channels, channels * grow, outs, size, kernel, step, channels // 4)
            channels, size = outs, size // step
    yield conv(8, 320, 1280, 7, 1)


def unet() -> Iterator[Layer]:
    """Ronneberger et al. 2015, figure 1: windows without padding."""
    channels, size = 1, 572
    for width in (64, 128, 256, 512, 1024):
        yield Convolution(1, channels, width, (size, size), 3)
        yield Convolution(1, width, width, (size - 2, size - 2), 3)
        channels, size = width, (size - 4) // 2
    size = 28
    for width in (512, 256, 128, 64):
        yield Convolution(1, 2 * width, width, (size, size), 2, 2, transposed=True)
        yield Convolution(1, 2 * width, width, (2 * size, 2 * size), 3)
        yield Convolution(1, width, width, (2 * size - 2, 2 * size - 2), 3)
        size = 2 * size - 4
    yield Convolution(1, 64, 2, (388, 388), 1)


def dcgan() -> Iterator[Layer]:
    """Radford et al. 2015, figure 1: the generator, and a discriminator that mirrors it."""
    yield Linear(16, 100, 1024 * 16)
    for channels, outs, size in ((1024, 512, 4), (512, 256, 8), (256, 128, 16), (128, 3, 32)):
        yield Convolution(16, channels, outs, (size, size), 5, 2, 2, transposed=True, more=1)
        yield Convolution(16, outs, channels, (2 * size, 2 * size), 5, 2, 2)
    yield Linear(16, 1024 * 16, 1)


def transformer(rows: int, width: int, hidden: int) -> Iterator[Layer]:
    for inputs, outs in ((width, width), (width, 3 * width), (width, hidden), (hidden, width)):
        yield Linear(rows, inputs, outs)
    yield RowNorm("layer", rows, width)


def language() -> Iterator[Layer]:
    """ViT-B/16 (Dosovitskiy et al. 2020, table 1), BERT-base (Devlin et al. 2018), GPT-2 small (Radford et al. 2019, table 2)."""
    yield Convolution(8, 3, 768, (224, 224), 16, 16)
    yield from transformer(8 * 197, 768, 3072)
    yield from transformer(2 * 512, 768, 3072)
    yield Attention(8, 12, 1, 197, 197, 64)
    yield Attention(2, 12, 1, 512, 512, 64, "keys")
    yield Attention(2, 12, 1, 512, 512, 64, "causal")
    yield Attention(1, 12, 1, 1024, 1024, 64, "causal")
    yield Linear(64, 768, 30522)
    yield Linear(64, 768, 50257)


def llama() -> Iterator[Layer]:
    """Grattafiori et al. 2024; the sizes of the 1B model, whose block is the same."""
    yield RowNorm("rms", 1024, 2048)
    yield Rotary(2, 32, 512, 64)
    yield Attention(2, 32, 4, 512, 512, 64, "causal")
    yield Linear(256, 2048, 2048)
    yield Linear(256, 2048, 512)
    yield SwiGLU(128, 2048, 8192)


def whisper_tiny() -> Iterator[Layer]:
    """Radford et al. 2022, table 1; 30 seconds are 3000 frames, halved by the second convolution."""
    yield Convolution(1, 80, 384, (3000,), 3, 1, 1)
    yield Convolution(1, 384, 384, (3000,), 3, 2, 1)
    yield from transformer(1500, 384, 1536)
    yield Attention(1, 6, 1, 1500, 1500, 64)
    yield Attention(1, 6, 1, 448, 448, 64, "causal")
    yield Attention(1, 6, 1, 448, 1500, 64)


def lstm_language_model() -> Iterator[Layer]:
    """Zaremba et al. 2014, the medium network."""
    yield LSTM(20, 35, 650, 650, 2)
    yield Linear(700, 650, 10000)


def classifiers() -> Iterator[Layer]:
    """The last layers of the networks for images."""
    for inputs, outs in ((512, 1000), (2048, 1000), (25088, 4096), (4096, 4096), (4096, 1000), (960, 1280), (1280, 1000), (768, 1000)):
        yield Linear(8, inputs, outs)
    yield MaxPool(8, 64, 112, 3, 2, 1)


def networks() -> Dict[str, List[Layer]]:
    plain = [vgg16, unet, language, llama, whisper_tiny, lstm_language_model, classifiers]
    with_norms = [resnet18, resnet50, mobilenet_v3, efficientnet_b0, dcgan]
    return {**{f.__name__: list(f()) for f in plain}, **{f.__name__: list(normed(list(f()))) for f in with_norms}}


LAYERS: List[Layer] = list(dict.fromkeys(layer for layers in networks().values() for layer in layers))
