"""Sequential: layers in a row, with compile, fit, evaluate and predict. Source of names and arguments: keras.Sequential."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from .. import _C, nn
from .._C import Tensor
from .._messages.progress import Progress
from .._messages.table import text_lines
from .._tensor import creation as make
from ..autograd import no_grad
from ._lookup import named, optimizer_of
from .layers import Activation, Layer
from .losses import METRICS, Loss, loss_of
from .mixed_precision import LossScaleOptimizer


class History:
    """What ``fit`` gives: ``epoch``, their numbers, and ``history``, a list for each loss and metric."""

    def __init__(self) -> None:
        self.epoch: List[int] = []
        self.history: Dict[str, List[float]] = {}

    def add(self, epoch: int, numbers: Dict[str, float]) -> None:
        """One more epoch."""
        self.epoch.append(epoch)
        for name, value in numbers.items():
            self.history.setdefault(name, []).append(value)

    def __repr__(self) -> str:
        return f"History({len(self.epoch)} epochs: {', '.join(f'{k}={v[-1]:.4g}' for k, v in self.history.items())})"


class Sequential(nn.Module):
    """Layers, one after the other.

    Args:
        layers: ``keras.layers``; the first may be ``Input(shape)``.
        name: for people.

    TypeError for what is no layer."""

    def __init__(self, layers: Optional[Sequence[Any]] = None, name: str = "sequential") -> None:
        super().__init__()
        self.name, self._shape = name, None
        self.layers: Any = nn.ModuleList()
        self.optimizer: Any = None
        self.stop_training = False  # a callback's wish
        self._loss: Optional[Callable[..., Tensor]] = None
        self._metrics: Dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
        for layer in layers or []:
            self.add(layer)

    def add(self, layer: Any) -> None:
        """One more at the end."""
        if isinstance(layer, dict) and "input_shape" in layer:
            self._shape = layer["input_shape"]
            return
        if not isinstance(layer, nn.Module):
            raise TypeError(f"Sequential: expected layers, got {type(layer).__name__}")
        self.layers.append(layer)
        shape = self._shape or getattr(self.layers[0], "_input_shape", None)
        if shape is not None:
            self.build((None, *shape))

    def build(self, input_shape: Sequence[Any]) -> None:
        """Makes the variables of all layers."""
        training, whole = self.training, make.zeros(1, *input_shape[1:])
        self.eval()
        with no_grad():
            self.forward(whole)
        self.train(training)

    def forward(self, x: Tensor) -> Tensor:
        """What the layers make of x."""
        for layer in self.layers:
            x = layer(x)
        return x

    def _logits(self, x: Tensor) -> Tensor:
        """``forward`` without the last activation."""
        for layer in self.layers[:-1]:
            x = layer(x)
        return self.layers[-1].logits(x)

    # -- training --------------------------------------------------------------------------------------------

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, metrics: Optional[Sequence[Any]] = None, auto_scale_loss: bool = True) -> None:
        """How to train: names, or ``keras.optimizers``/``ampc.optim``, ``keras.losses``, functions of (y_true, y_pred). Where a layer computes
        in float16 the loss is scaled, unless ``auto_scale_loss`` is False.

        ValueError for unknown names."""
        self._given, self._scales = optimizer, auto_scale_loss
        self.optimizer = None
        self._loss = loss_of(loss)
        self._metrics = {m if isinstance(m, str) else m.__name__: named(m, METRICS, "metric", "accuracy") for m in metrics or []}
        if all(getattr(layer, "built", True) for layer in self.layers):
            self._make_optimizer()

    def _make_optimizer(self) -> None:
        if self.optimizer is not None:
            return
        optimizer = self._given if isinstance(self._given, LossScaleOptimizer) else optimizer_of(self._given, self.parameters())
        half = any(isinstance(layer, Layer) and layer.compute_dtype == "float16" for layer in self.layers)
        scaled = half and self._scales and not isinstance(optimizer, LossScaleOptimizer)
        self.optimizer = LossScaleOptimizer(optimizer) if scaled else optimizer

    def _step(self, x: Tensor, y: Tensor, train: bool) -> Tuple[Tensor, Tensor]:
        """Loss and prediction of a batch."""
        if not len(self.layers):
            raise ValueError("the model has no layers: add some first")
        loss, last = self._loss, self.layers[-1]
        if loss is None:
            raise RuntimeError("the model has no loss: call compile(optimizer, loss) first")
        if isinstance(loss, Loss) and not loss.from_logits and isinstance(last, Activation) and last.activation_name == loss.of:
            logits = self._logits(x)
            value = loss(y, logits, True)
            with no_grad():
                prediction = last.activation(logits)
        else:
            prediction = self(x)
            value = loss(y, prediction)
        if train:
            self._make_optimizer()
            self._update(value)
        return value.detach(), prediction.detach()

    def _update(self, loss: Tensor) -> None:
        if isinstance(self.optimizer, LossScaleOptimizer):
            self.optimizer.minimize(loss)
            return
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def _run(self, batches: Any, total: Optional[int], *, train: bool, text: str, shown: bool) -> Dict[str, float]:
        """Means over all samples."""
        sums: Dict[str, Tensor] = {}
        count = 0
        bar = Progress(batches, text, total, shown)
        self.train(train)
        for x, y in bar:
            x, y = self._to_device(x), self._to_device(y)
            if train:
                loss, prediction = self._step(x, y, True)
            else:
                with no_grad():
                    loss, prediction = self._step(x, y, False)
            n = x.shape[0]
            with no_grad():
                numbers = {"loss": loss, **{name: metric(y, prediction) for name, metric in self._metrics.items()}}
                sums = {name: sums.get(name, 0.0) + n * value.double() for name, value in numbers.items()}
            count += n
            if bar.is_shown:  # it waits for a GPU
                bar.note({name: sum.item() / count for name, sum in sums.items()})
        if count == 0:
            raise ValueError(f"{text}: there are no samples")
        return {name: sum.item() / count for name, sum in sums.items()}

    def _to_device(self, value: Any) -> Tensor:
        where = next((p.device for p in self.parameters()), None)
        return _tensor(value).to(where) if where is not None else _tensor(value)

    def fit(self, x: Any, y: Any = None, batch_size: int = 32, epochs: int = 1, verbose: Any = "auto", callbacks: Optional[Sequence[Any]] = None,
            validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True, initial_epoch: int = 0) -> History:
        """Trains on arrays or Tensors x and y, or on an iterable of (x, y) batches, such as a DataLoader.

        Args:
            verbose: 'auto' or 1: a line an epoch, and a bar while it runs (with tqdm, in a terminal); 2: the line alone; 0: nothing.
            callbacks: objects whose ``on_epoch_end(epoch, logs)`` is called; they may set ``model.stop_training``.
            validation_split: the share at the end of x and y that is not trained on; or ``validation_data``: (x, y) or batches.

        RuntimeError before ``compile``; ValueError for arrays of different lengths or no samples."""
        if y is not None:
            x, y = _tensor(x), _tensor(y)
            _same_length(x, y)
            if not 0 <= validation_split < 1:
                raise ValueError(f"fit: `validation_split` must be at least 0 and below 1, got {validation_split}")
            if validation_split:
                at = len(x) - int(len(x) * validation_split)
                validation_data, x, y = (x[at:], y[at:]), x[:at], y[:at]
        history, shown = History(), verbose in ("auto", 1)
        self.stop_training = False
        for callback in callbacks or []:
            callback.model = self
        for epoch in range(initial_epoch, epochs):
            begin, text = time.perf_counter(), f"epoch {epoch + 1}/{epochs}"
            logs = self._run(*_batches(x, y, batch_size, shuffle), shown=shown, train=True, text=text)
            if validation_data is not None:
                logs.update({f"val_{k}": v for k, v in self._validate(validation_data, batch_size).items()})
            history.add(epoch, logs)
            if verbose:
                print(f"{text} - {time.perf_counter() - begin:.1f} s - {' - '.join(f'{k}: {v:.4g}' for k, v in logs.items())}")
            for callback in callbacks or []:
                callback.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        return history

    def _validate(self, data: Any, batch_size: int) -> Dict[str, float]:
        x, y = data if isinstance(data, (tuple, list)) and len(data) == 2 else (data, None)
        return self._run(*_batches(x, y, batch_size, False), shown=False, train=False, text="validation")

    def evaluate(self, x: Any, y: Any = None, batch_size: int = 32, verbose: Any = "auto", return_dict: bool = False) -> Any:
        """The loss, or [loss, metrics...], or a dict of them. Errors as ``fit``'s."""
        logs = self._run(*_batches(x, y, batch_size, False), shown=verbose in ("auto", 1), train=False, text="evaluate")
        if verbose:
            print(" - ".join(f"{k}: {v:.4g}" for k, v in logs.items()))
        values = list(logs.values())
        return logs if return_dict else values if len(values) > 1 else values[0]

    def predict(self, x: Any, batch_size: int = 32, verbose: Any = "auto") -> np.ndarray:
        """What the model makes of x, [samples, ...], as a NumPy array; of bfloat16 as float32."""
        whole, made = _tensor(x), []
        self.eval()
        with no_grad():
            for batch in Progress(whole.split(batch_size), "predict", shown=verbose in ("auto", 1)):
                y = self(self._to_device(batch))
                made.append((y.float() if y.dtype is _C.bfloat16 else y).numpy(force=True))
        return np.concatenate(made) if made else np.empty(0, np.float32)

    # -- looking ------------------------------------------------------------------------------------------------

    def count_params(self) -> int:
        """How many numbers it trains."""
        return sum(p.numel() for p in self.parameters())

    def summary(self) -> None:
        """Prints the layers, their policies and sizes."""
        rows = [("layer", "policy", "parameters")]
        for i, layer in enumerate(self.layers):
            policy = layer.dtype_policy.name if isinstance(layer, Layer) else ""
            built = getattr(layer, "built", True)
            rows.append((f"{getattr(layer, 'name', type(layer).__name__.lower())} ({i})", policy,
                         f"{sum(p.numel() for p in layer.parameters()):,}" if built else "not built"))
        print("\n".join([f"{self.name}:", *text_lines(rows, {0, 1}), f"{self.count_params():,} parameters"]))


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    return make.tensor(array.astype(np.float32) if array.dtype == np.float64 else array)


def _same_length(x: Tensor, y: Tensor) -> None:
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} samples and y {len(y)}")


def _batches(x: Any, y: Any, size: int, shuffle: bool) -> Tuple[Any, Optional[int]]:
    """The batches, and how many there are where that is known."""
    if y is None:
        return x, len(x) if hasattr(x, "__len__") else None
    x, y = _tensor(x), _tensor(y)
    _same_length(x, y)

    def cut() -> Iterator[Tuple[Tensor, Tensor]]:
        order = make.randperm(len(x)) if shuffle else make.arange(len(x))
        for at in range(0, len(x), size):
            some = order[at:at + size]
            yield x[some], y[some]

    return cut(), -(-len(x) // size)
