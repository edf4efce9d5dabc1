"""Training by CUDA graphs: a whole step of mixed precision, and parts of a model."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .. import _C
from .._C import Tensor, dtype
from .._tensor import creation as make
from ..amp import GradScaler, autocast
from ..autograd import Function, grad
from ..nn import Module
from ..optim import Optimizer
from . import device
from .graphs import CUDAGraph, graph, graph_pool_handle


class _Captured(NamedTuple):
    """A step that was captured, for batches of one shape."""

    graph: CUDAGraph
    batch: List[Tensor]  # the inputs and targets that it reads
    loss: Tensor
    grads: List[Tuple[Tensor, Tensor]]  # each parameter that has one, and its gradient
    states: tuple  # of the optimizer and the scaler, that it advances


def _check(model: Any, loss_fn: Any, optimizer: Any, scaler: Any) -> Any:
    """The device of a step. An error that says why it cannot be captured."""
    if not isinstance(model, Module):
        raise TypeError(f"graph_step: `model` must be a Module, got {type(model).__name__}; call graph_step(model, loss_fn, optimizer, scaler)")
    if not callable(loss_fn):
        raise TypeError(f"graph_step: `loss_fn` must be a function of the model's result and the targets, got {type(loss_fn).__name__}; "
                        "nn.functional.cross_entropy is one")
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"graph_step: `optimizer` must be an optimizer of ampc.optim, got {type(optimizer).__name__}; ampc.optim.SGD("
                        "model.parameters(), lr=0.1) is one")
    params = [*model.parameters(), *(p for group in optimizer.param_groups for p in group["params"])]
    devices = sorted({str(p.device) for p in params})
    if len(devices) != 1 or not devices[0].startswith("cuda"):
        raise RuntimeError(f"graph_step: CUDA graphs need the whole model on one GPU, and its parameters are on "
                           f"{', '.join(devices) or 'none'}; write the step as a loop there, or move the model by model.to('cuda')")
    if not isinstance(optimizer, Optimizer) or not optimizer._can_zero():
        raise TypeError(f"graph_step: the update of {type(optimizer).__name__} is computed in Python, so a captured step would keep its learning "
                        "rate for ever; use an optimizer of ampc.optim whose update is computed in C, such as SGD or AdamW")
    if scaler is not None and not isinstance(scaler, GradScaler):
        raise TypeError(f"graph_step: `scaler` must be a GradScaler or None, got {type(scaler).__name__}")
    return next(model.parameters()).device


class graph_step:
    """A whole training step that is captured once as a CUDA graph, and then replayed: ``loss = step(inputs, targets)``.

    A step clears the gradients, computes ``loss_fn(model(inputs), targets)`` under autocast, runs backward of the scaled loss, clips the
    gradients if a limit is given, steps, and updates the scale. Whether a step is skipped is decided on the GPU, where the scale, the counts
    of steps and the random numbers of dropout are, too. The learning rate and the optimizer's other options may change between steps, by a
    scheduler as well. The numbers are those of the same step without a graph, bit for bit.

    The first ``warmup`` calls for batches of one shape run without a graph, and so do all until the optimizer has made its first step: the
    scale often starts too high. A batch of another shape is captured by itself. A step is captured again when ``model.training`` or an option
    of the scaler has changed, and after the optimizer or the scaler has loaded a state. Any other change of the model, such as a parameter's
    ``requires_grad``, needs a new ``graph_step``. Inputs and targets are Tensors, or tuples of Tensors; those on the CPU are copied. Gradients
    stay in ``p.grad`` until the next step.

    ``scaler.gate(scheduler).step()`` after the step follows applied steps only, as without a graph; it waits for the GPU to know.

    With ``micro_batches``, a step accumulates gradients: it cuts each batch into so many equal parts along its first dimension, and runs forward
    and backward on one after the other, each loss divided by their number. Only one part's activations are in memory at a time.

    Args:
        model: a Module, with all parameters on one GPU.
        loss_fn: called with the model's result and the targets; a 0-d Tensor.
        optimizer: of ``ampc.optim``, with an update that is computed in C.
        scaler: a GradScaler, or None for bfloat16 and float32.
        dtype: of autocast: float16, bfloat16, or float32, which leaves it out. Default: float16 with a scaler, else bfloat16.
        max_norm: the limit of ``clip_grad_norm_``, or None. Setting the attribute ``max_norm`` changes it.
        warmup: how many steps run before the capture, >= 1.
        micro_batches: how many parts of a batch a step accumulates the gradients of, >= 1.

    ValueError for another dtype, and for a batch that cannot be cut into ``micro_batches`` equal parts. TypeError for a model, function,
    optimizer or scaler that is none. RuntimeError for a model that is not on a GPU, and where the step does what cannot be captured; it names
    the script's line."""

    def __init__(self, model: Module, loss_fn: Callable[..., Tensor], optimizer: Optimizer, scaler: Optional[GradScaler] = None, *,
                 dtype: Optional[dtype] = None, max_norm: Optional[float] = None, warmup: int = 2,
                 micro_batches: int = 1) -> None:
        self._device = _check(model, loss_fn, optimizer, scaler)
        if warmup < 1:
            raise ValueError(f"graph_step: `warmup` must be at least 1, because the first step makes the optimizer's state; got {warmup}")
        if micro_batches < 1:
            raise ValueError(f"graph_step: `micro_batches` must be at least 1, got {micro_batches}")
        if dtype not in (None, _C.float16, _C.bfloat16, _C.float32):
            raise ValueError(f"graph_step: `dtype` must be float16, bfloat16 or float32, got {dtype}")
        self._micro_batches = micro_batches
        self.model, self.loss_fn, self.optimizer, self.scaler = model, loss_fn, optimizer, scaler
        self._dtype = dtype or (_C.bfloat16 if scaler is None else _C.float16)
        self._warmup, self._runs = warmup, {}  # type: ignore[var-annotated]  # how often each shape has run without a graph
        self._lacks_state = True  # whether the optimizer's first step is still to come, because all so far were skipped
        self._limit: Optional[Tensor] = None
        self._captured: Dict[tuple, _Captured] = {}
        self._pool = graph_pool_handle()
        if max_norm is not None:
            self.max_norm = max_norm

    @property
    def max_norm(self) -> Optional[float]:
        """The limit of the gradients' norm, or None. Reading it waits for the GPU. RuntimeError when a limit is set or removed after a capture."""
        return None if self._limit is None else self._limit.item()

    @max_norm.setter
    def max_norm(self, value: Optional[float]) -> None:
        if self._captured and (value is None) != (self._limit is None):
            raise RuntimeError("graph_step: a captured step clips, or does not; a limit can be changed, but not added or removed")
        if value is None:
            self._limit = None
        elif self._limit is None:
            self._limit = make.full((), float(value), dtype=_C.float64, device=self._device)
        else:
            self._limit.fill_(float(value))

    def __call__(self, inputs: Union[Tensor, Tuple[Tensor, ...]], targets: Union[Tensor, Tuple[Tensor, ...]] = ()) -> Tensor:
        """One step. Returns the loss before it, the mean over micro-batches, a 0-d Tensor of its own that is not waited for."""
        split = [each if isinstance(each, tuple) else (each,) for each in (inputs, targets)]
        batch = [*split[0], *split[1]]
        for t in batch:
            if not isinstance(t, Tensor):
                raise TypeError(f"graph_step: inputs and targets must be Tensors, got {type(t).__name__}")
            if self._micro_batches > 1 and (t.ndim == 0 or t.shape[0] % self._micro_batches or t.shape[0] != batch[0].shape[0]):
                raise ValueError(f"graph_step: a batch is cut into {self._micro_batches} micro-batches, so the first dimension of all its Tensors "
                                 f"must be the same multiple of {self._micro_batches}; got {[list(b.shape) for b in batch]}")
        key = (len(split[0]), *((t.shape, t.dtype) for t in batch), *self._options())
        step = self._captured.get(key)
        if step is not None and any(a is not b for a, b in zip(step.states, self._states())):  # others were loaded
            self._captured, self._runs, step = {}, {}, None
        if step is None:
            self._runs[key] = self._runs.get(key, 0) + 1
            if self._runs[key] <= self._warmup or self._lacks_state:
                return self._run_eagerly([t.to(self._device) for t in batch], key[0])
            step = self._captured[key] = self._capture([t.to(self._device).clone() for t in batch], key[0])
        else:
            for mine, t in zip(step.batch, batch):
                mine.copy_(t, non_blocking=True)
        for p, g in step.grads:  # the script may have set some of them to others
            if p.grad is not g:
                p.grad = g
        step.graph.replay()
        return step.loss.clone()

    def _options(self) -> tuple:
        """What a capture keeps as it was."""
        s = self.scaler
        return (self.model.training, *(() if s is None else (s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval())))

    def _states(self) -> tuple:
        return self.optimizer.state, self.scaler and self.scaler._state

    def _run_eagerly(self, batch: List[Tensor], n_inputs: int) -> Tensor:
        with self._nothing_left_behind():
            loss = self._run(batch, n_inputs)
        self._lacks_state = self.optimizer._makes_state()
        return loss

    @contextmanager
    def _nothing_left_behind(self) -> Iterator[None]:
        """A step that fails leaves no gradients, and no iteration that has begun."""
        try:
            yield
        except BaseException:
            self.optimizer.zero_grad(set_to_none=True)
            if self.scaler is not None:
                self.scaler._end_iteration()
            raise

    def _run(self, batch: List[Tensor], n_inputs: int) -> Tensor:
        optimizer, scaler = self.optimizer, self.scaler
        optimizer.zero_grad(set_to_none=True)
        loss = self._backward(batch, n_inputs)
        if self._limit is not None:
            from ..nn.utils import clip_grad_norm_  # here, so that `import ampc` does not load it

            if scaler is not None:
                scaler.unscale_(optimizer)
            clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], self._limit)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        return loss

    def _backward(self, batch: List[Tensor], n_inputs: int) -> Tensor:
        """Forward and backward of all micro-batches. Their mean loss."""
        parts, losses = self._micro_batches, []
        for micro in zip(*(t.chunk(parts) for t in batch)) if parts > 1 else (batch,):
            with autocast("cuda", dtype=_C.float16 if self._dtype is _C.float32 else self._dtype, enabled=self._dtype is not _C.float32):
                loss = self.loss_fn(self.model(*micro[:n_inputs]), *micro[n_inputs:])
            if parts > 1:
                loss = loss / parts
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            losses.append(loss.detach())
        return sum(losses[1:], losses[0])

    def _capture(self, batch: List[Tensor], n_inputs: int) -> _Captured:
        self.optimizer.zero_grad(set_to_none=True)
        with device(self._device), self._nothing_left_behind():
            captured = CUDAGraph()
            with graph(captured, pool=self._pool):
                loss = self._run(batch, n_inputs)
        params = [p for group in self.optimizer.param_groups for p in group["params"]]
        return _Captured(captured, batch, loss, [(p, p.grad) for p in params if p.grad is not None], self._states())


# -- parts of a model ----------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A callable that was captured, forward and backward."""

    forward: CUDAGraph
    backward: Optional[CUDAGraph]
    arguments: Tuple[Tensor, ...]
    takes: Any  # how they are nested
    params: Tuple[Tensor, ...]
    outputs: Tuple[Tensor, ...]
    gives: Any  # how they are nested
    grad_outputs: List[Optional[Tensor]]
    grads: List[Optional[Tensor]]  # of the arguments and parameters


def make_graphed_callables(callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False,
                           pool: Any = None) -> Any:
    """Captures forward and backward of functions or Modules, which run as before, but by replays. Source: torch.cuda.make_graphed_callables.

    Args:
        callables: a function or Module of Tensors, or a tuple of them in the order in which they run. They return a Tensor, or Tensors in tuples,
            lists and dicts.
        sample_args: a tuple of Tensors on a GPU for each, with the shapes and ``requires_grad`` of all later arguments, or of lists and dicts
            of them.
        num_warmup_iters: how often each runs before the capture.
        allow_unused_input: whether an argument or parameter may have no gradient.
        pool: memory to share, as for ``cuda.graph``.

    A result is overwritten by the next call. A Module is returned itself, and runs as before where its ``training`` has changed. RuntimeError
    for Modules with hooks, and where something cannot be captured."""
    _C._cuda_init()
    alone = not isinstance(callables, tuple)
    parts = (callables,) if alone else callables
    arguments = (sample_args,) if alone else sample_args
    for part in parts:
        if isinstance(part, Module) and (part._forward_hooks or part._forward_pre_hooks or part._backward_hooks):
            raise RuntimeError("make_graphed_callables: a Module must not have hooks when it is captured; register them afterwards")
    samples = [a for args in arguments for a in _flat(args)[0]]
    if any(not isinstance(a, Tensor) or not a.is_cuda for a in samples):
        raise RuntimeError("make_graphed_callables: sample_args must be tuples of Tensors on a GPU, or of lists and dicts of them, one for each "
                           "callable")
    memory = graph_pool_handle() if pool is None else pool
    for part, args in zip(parts, arguments):
        for _ in range(num_warmup_iters):
            _warm_up(part, args, allow_unused_input)
    gc.collect()
    with device(samples[0].device if samples else None):
        captured = [_capture_forward(part, args, memory) for part, args in zip(parts, arguments)]
        for i in reversed(range(len(captured))):  # gradients are computed in this order
            captured[i] = _capture_backward(captured[i], allow_unused_input, memory)
    made = tuple(_replace(part, _as_function(found)) for part, found in zip(parts, captured))
    return made[0] if alone else made


def _params(part: Any) -> Tuple[Tensor, ...]:
    return tuple(p for p in part.parameters() if p.requires_grad) if isinstance(part, Module) else ()


def _flat(nested: Any) -> Tuple[Tuple[Any, ...], Any]:
    """The leaves of arguments or results, and how they are nested."""
    from ..utils._pytree import tree_flatten  # here, so that `import ampc` does not load it

    leaves, how = tree_flatten(nested)
    return tuple(leaves), how


def _outputs(result: Any) -> Tuple[Tuple[Tensor, ...], Any]:
    """The Tensors of a result, and how they are nested in it."""
    outputs, nested = _flat(result)
    if not all(isinstance(o, Tensor) for o in outputs):
        raise TypeError("make_graphed_callables: a callable must return a Tensor, or tuples, lists and dicts of Tensors")
    return outputs, nested


def _gradients(outputs: Tuple[Tensor, ...], sources: Tuple[Tensor, ...], seeds: List[Optional[Tensor]], allow_unused: bool) -> List[Optional[Tensor]]:
    """The gradients of the sources, None for those that need none."""
    wanted = [s for s in sources if s.requires_grad]
    roots = [o for o in outputs if o.requires_grad]
    if not roots or not wanted:
        return [None] * len(sources)
    found = iter(grad(roots, wanted, grad_outputs=[s for s in seeds if s is not None], allow_unused=allow_unused))
    return [next(found) if s.requires_grad else None for s in sources]


def _seeds(outputs: Tuple[Tensor, ...]) -> List[Optional[Tensor]]:
    return [make.zeros(o.shape, dtype=o.dtype, device=o.device) if o.requires_grad else None for o in outputs]


def _warm_up(part: Any, args: Tuple[Any, ...], allow_unused: bool) -> None:
    outputs, _ = _outputs(part(*args))
    _gradients(outputs, (*_flat(args)[0], *_params(part)), _seeds(outputs), allow_unused)


def _capture_forward(part: Any, args: Tuple[Any, ...], pool: Any) -> _Part:
    forward = CUDAGraph()
    with graph(forward, pool=pool):
        result = part(*args)
    leaves, takes = _flat(args)
    outputs, gives = _outputs(result)
    return _Part(forward, None, leaves, takes, _params(part), outputs, gives, _seeds(outputs), [])


def _capture_backward(part: _Part, allow_unused: bool, pool: Any) -> _Part:
    sources = (*part.arguments, *part.params)
    if not any(o.requires_grad for o in part.outputs):
        return part._replace(grads=[None] * len(sources))
    backward = CUDAGraph()
    with graph(backward, pool=pool):
        grads = _gradients(part.outputs, sources, part.grad_outputs, allow_unused)
    return part._replace(backward=backward, grads=grads, outputs=tuple(o.detach().requires_grad_(o.requires_grad) for o in part.outputs))


def _keep_accumulated(part: _Part) -> None:
    """A parameter may have taken over the gradient of the replay before, which the next one overwrites."""
    for p, g in zip(part.params, part.grads[len(part.arguments):]):
        if g is not None and p.grad is not None and p.grad.data_ptr() == g.data_ptr():
            p.grad = p.grad.clone()


def _as_function(part: _Part) -> Callable[..., Any]:
    """A function of the arguments that replays."""

    class Graphed(Function):
        """A captured part of a model."""

        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Any:
            for mine, given in zip(part.arguments, inputs):
                if mine.data_ptr() != given.data_ptr():
                    mine.detach().copy_(given)
            part.forward.replay()
            results = tuple(o.detach() for o in part.outputs)
            ctx.mark_non_differentiable(*(r for r, o in zip(results, part.outputs) if not o.requires_grad))
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Optional[Tensor]) -> Any:
            for mine, given in zip(part.grad_outputs, grads):
                if mine is None:
                    continue
                if given is None:
                    mine.zero_()
                elif mine.data_ptr() != given.data_ptr():
                    mine.copy_(given)
            _keep_accumulated(part)
            if part.backward is not None:
                part.backward.replay()
            return tuple(g if g is None else g.detach() for g in part.grads)

    def call(*args: Any) -> Any:
        leaves, nested = _flat(args)
        if nested != part.takes:
            raise TypeError(f"a graphed callable takes the {len(part.arguments)} arguments that it was captured with, nested as they were, "
                            f"got {len(leaves)}")
        for mine, given in zip(part.arguments, leaves):
            if not isinstance(given, Tensor) or given.shape != mine.shape or given.dtype is not mine.dtype:
                what = f"{list(given.shape)} {given.dtype}" if isinstance(given, Tensor) else type(given).__name__
                raise RuntimeError(f"a graphed callable was captured with an argument of {list(mine.shape)} {mine.dtype}, got {what}")
        return part.gives.unflatten(Graphed.apply(*leaves, *part.params))

    return call


def _replace(part: Any, graphed: Callable[..., Any]) -> Any:
    if not isinstance(part, Module):
        return graphed
    before, training = part.forward, part.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        return graphed(*args) if part.training == training and not kwargs else before(*args, **kwargs)

    part.forward = forward
    return part


__all__ = ["graph_step", "make_graphed_callables"]
