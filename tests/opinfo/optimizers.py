"""torch's samples of optimizers: the same parameters and gradients in both libraries, several steps of each, their states and error inputs."""

from __future__ import annotations

import functools
import types
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

import ampc

from .compare import difference
from .running import Difference, outcome, same_error, short, told
from .translate import Inexpressible, Sample, to_ampc

STEPS = 6
SHAPES = [(5, 3), (7,), (2, 3, 4)]
MATRICES = [(5, 3), (4, 4)]  # what Muon takes
WAYS = {"capturable", "differentiable", "foreach", "fused", "decoupled_weight_decay"}  # keys of torch's groups: there is one way here
Twins = List[Tuple[Any, Any]]


class Optimizer:
    """The checks of one entry of the database."""

    def __init__(self, info: Any, most: int = 0) -> None:
        self.info, self.most, self.count = info, most, 0
        self.op = types.SimpleNamespace(name=info.optim_cls.__name__)
        self.name = self.op.name
        self.function = getattr(ampc.optim, self.name, None)

    def dtypes(self) -> List[torch.dtype]:
        return [torch.float32, torch.float64]

    def check(self) -> Iterator[Difference]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.info.optim_inputs_func("cpu")
            for case in found[::max(1, -(-len(found) // self.most))] if self.most else found:
                for dtype in self.dtypes():
                    yield from self.beside(dtype, case)
            yield from self.errors()

    def told(self, dtype: Any, way: str, case: Any, kind: str, theirs: Any, ours: Any) -> Difference:
        return Difference(self.name, str(dtype).split(".")[-1], way, short(case.kwargs), kind, short(theirs), short(ours))

    def twins(self, dtype: Any) -> Twins:
        torch.manual_seed(0)
        start = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in (MATRICES if self.name == "Muon" else SHAPES)]
        return [(torch.nn.Parameter(x.clone()), ampc.nn.Parameter(to_ampc(x.clone()))) for x in start]

    def made(self, twins: Twins, case: Any) -> Tuple[Any, Any, Optional[BaseException], Optional[BaseException]]:
        kwargs = Sample().for_ampc(case.kwargs)
        theirs, t_error = outcome(self.info.optim_cls, [t for t, _ in twins], **case.kwargs)
        ours, a_error = outcome(self.function, [a for _, a in twins], **kwargs)
        return theirs, ours, t_error, a_error

    def beside(self, dtype: Any, case: Any) -> Iterator[Difference]:
        twins = self.twins(dtype)
        try:
            theirs, ours, t_error, a_error = self.made(twins, case)
        except Inexpressible:
            return
        self.count += 1
        if t_error is not None or a_error is not None:
            if not same_error(t_error, a_error):
                yield self.told(dtype, "constructor", case, "exception", told(t_error), told(a_error))
            return
        keys = sorted(theirs.state_dict()["param_groups"][0]), sorted(ours.state_dict()["param_groups"][0])
        if set(keys[0]) - set(keys[1]) - WAYS:
            yield self.told(dtype, "param_groups", case, "type", *keys)
        for step in range(STEPS):
            runs = [outcome(o.step, closure(ps, step, o)) for o, ps in ((theirs, [t for t, _ in twins]), (ours, [a for _, a in twins]))]
            if runs[0][1] is not None or runs[1][1] is not None:
                if not same_error(runs[0][1], runs[1][1]):
                    yield self.told(dtype, "step", case, "exception", told(runs[0][1]), told(runs[1][1]))
                return
            found = difference([t.detach() for t, _ in twins], [a.detach() for _, a in twins], strides=False, reference=functools.partial(self.again, dtype, case, step + 1))
            if found:
                yield self.told(dtype, f"step {step}", case, *found)
                return
        yield from self.states(dtype, case, theirs, ours)

    def again(self, dtype: Any, case: Any, steps: int, convert: Any) -> List[Any]:
        """torch's parameters after these steps, from converted ones."""
        params = [torch.nn.Parameter(convert(t)) for t, _ in self.twins(dtype)]
        optimizer = self.info.optim_cls(params, **case.kwargs)
        for step in range(steps):
            optimizer.step(closure(params, step, optimizer))
        return [p.detach() for p in params]

    def states(self, dtype: Any, case: Any, theirs: Any, ours: Any) -> Iterator[Difference]:
        """What state_dict keeps has torch's names."""
        t, a = theirs.state_dict()["state"], ours.state_dict()["state"]
        names = [sorted(t.get(0, {})), sorted(a.get(0, {}))]
        if sorted(t) != sorted(a) or set(names[0]) - set(names[1]):
            yield self.told(dtype, "state", case, "type", (sorted(t), names[0]), (sorted(a), names[1]))

    def errors(self) -> Iterator[Difference]:
        for case in self.info.optim_error_inputs_func("cpu", torch.float32) if self.info.optim_error_inputs_func else []:
            given = case.optimizer_error_input
            if given.params is None:
                given.params = [t for t, _ in self.twins(torch.float32)]
            both = Sample()
            try:
                params, kwargs = leaves(both.for_ampc(given.params), {}), both.for_ampc(given.kwargs)
            except Inexpressible:
                continue
            self.count += 1
            _, t_error = outcome(lambda: self.info.optim_cls(given.params, **given.kwargs))  # noqa: B023
            _, a_error = outcome(lambda: self.function(params, **kwargs))  # noqa: B023
            if t_error is not None and not same_error(t_error, a_error):
                yield self.told("", "error", given, "exception", told(t_error), told(a_error))


def leaves(value: Any, made: Dict[int, Any]) -> Any:
    """ampc's tensors as parameters, in lists, pairs with names, and groups; the same one for the same tensor."""
    if isinstance(value, ampc.Tensor):
        return made.setdefault(id(value), ampc.nn.Parameter(value))
    if isinstance(value, (list, tuple)):
        return type(value)(leaves(x, made) for x in value)
    return {k: leaves(v, made) for k, v in value.items()} if isinstance(value, dict) else value


def closure(params: List[Any], step: int, optimizer: Any) -> Callable[[], Any]:
    """A loss whose gradients change from step to step: rough at the start of training, smooth afterwards."""
    weights: Dict[int, float] = {k: 0.5 + 0.25 * ((k + step) % 3) for k in range(len(params))}

    def run() -> Any:
        optimizer.zero_grad()
        loss = sum(weights[k] * ((p * p).sum() + (1.5 * p - step).sin().sum()) for k, p in enumerate(params))
        loss.backward()
        return loss

    return run


def optimizers(most: int = 0) -> Iterator[Optimizer]:
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        yield Optimizer(info, most)
