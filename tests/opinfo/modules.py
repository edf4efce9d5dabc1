"""torch's samples of modules: the same parameters in both libraries, what they give, their gradients, buffers and error inputs."""

from __future__ import annotations

import copy
import types
import warnings
from typing import Any, Iterator, List, Optional, Tuple

import torch

import ampc

from .compare import difference
from .running import Difference, converted, ends, expressible, gradients_beside, outcome, same_error, short, tensors, told
from .translate import DTYPES, Inexpressible, Sample, to_ampc

DRAWN = {"FractionalMaxPool2d", "FractionalMaxPool3d"}  # windows from random numbers


class Module:
    """The checks of one entry of the database."""

    def __init__(self, info: Any, most: int = 0) -> None:
        """`most` samples of each dtype, spread over all of them; 0 takes all."""
        self.info, self.most, self.count = info, most, 0
        self.op = types.SimpleNamespace(name=info.module_cls.__name__)
        self.name = self.op.name
        self.function = getattr(ampc.nn, self.name, None)

    def dtypes(self) -> List[torch.dtype]:
        return [d for d in DTYPES if d in self.info.supported_dtypes("cpu")]

    def check(self) -> Iterator[Difference]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in self.dtypes():
                for training in (True, False) if self.info.train_and_eval_differ else (True,):
                    for sample in self.samples(dtype, training):
                        yield from self.beside(dtype, training, sample)
            yield from self.errors()

    def samples(self, dtype: torch.dtype, training: bool) -> List[Any]:
        torch.manual_seed(0)
        requires = dtype.is_floating_point
        found = list(self.info.module_inputs_func(self.info, device="cpu", dtype=dtype, requires_grad=requires, training=training))
        return found[::max(1, -(-len(found) // self.most))] if self.most else found

    def told(self, dtype: Any, way: str, sample: Any, kind: str, theirs: Any, ours: Any) -> Difference:
        given = [(x.args, x.kwargs) for x in (sample.constructor_input, sample.forward_input) if x]
        return Difference(self.name, str(dtype).split(".")[-1], way, ends(given), kind, short(theirs), short(ours))

    def made(self, dtype: Any, training: bool, sample: Any) -> Tuple[Any, Any, Optional[BaseException], Optional[BaseException]]:
        """The module in torch and in ampc, with torch's parameters; or the exceptions of their constructors."""
        both, given = Sample(), sample.constructor_input
        args, kwargs = both.for_ampc(given.args), both.for_ampc(given.kwargs)
        torch.manual_seed(0)
        theirs, t_error = outcome(lambda: self.info.module_cls(*given.args, **given.kwargs).to(dtype).train(training))
        ours, a_error = outcome(lambda: self.function(*args, **kwargs).to(DTYPES[dtype]).train(training))
        return theirs, ours, t_error, a_error

    def beside(self, dtype: Any, training: bool, sample: Any) -> Iterator[Difference]:
        way = "training" if training else "evaluation"
        try:
            theirs, ours, t_error, a_error = self.made(dtype, training, sample)
        except Inexpressible:
            return
        self.count += 1
        if t_error is not None or a_error is not None:
            if not same_error(t_error, a_error):
                yield self.told(dtype, "constructor", sample, "exception", told(t_error), told(a_error))
            return
        self.give_sizes(sample, theirs, ours)
        found = self.same_state(theirs, ours)
        if found:
            yield self.told(dtype, "state_dict", sample, "type", *found)
            return
        ours.load_state_dict({name: to_ampc(t) for name, t in theirs.state_dict().items()})
        yield from self.forward(dtype, way, sample, theirs, ours)

    def give_sizes(self, sample: Any, theirs: Any, ours: Any) -> None:
        """Of lazy modules, by a first input."""
        if hasattr(theirs, "has_uninitialized_params") and sample.forward_input:
            both, given = Sample(), sample.forward_input
            theirs(*both.for_torch(given.args), **both.for_torch(given.kwargs))
            ours(*both.for_ampc(given.args), **both.for_ampc(given.kwargs))

    def same_state(self, theirs: Any, ours: Any) -> Optional[Tuple[Any, Any]]:
        """Keys and shapes, in their order."""
        t = [(name, tuple(x.shape)) for name, x in theirs.state_dict().items()]
        a = [(name, tuple(x.shape)) for name, x in ours.state_dict().items()]
        return None if t == a else (t, a)

    def forward(self, dtype: Any, way: str, sample: Any, theirs: Any, ours: Any) -> Iterator[Difference]:
        both, given = Sample(), sample.forward_input
        both.kept = (given.args, given.kwargs)
        try:
            (ta, tk), (aa, ak) = (both.for_torch(given.args), both.for_torch(given.kwargs)), (both.for_ampc(given.args), both.for_ampc(given.kwargs))
        except Inexpressible:
            return
        before = copy.deepcopy(theirs)
        t, t_error = outcome(theirs, *ta, **tk)
        if t_error is None and not expressible(t):
            return
        a, a_error = outcome(ours, *aa, **ak)
        if t_error is not None or a_error is not None:
            if not same_error(t_error, a_error):
                yield self.told(dtype, way, sample, "exception", told(t_error), told(a_error))
            return
        drawn = self.name in DRAWN
        found = difference(t, a, values=not drawn, strides=False, reference=lambda convert: again(before, ta, tk, convert)[0])
        if found:
            yield self.told(dtype, way, sample, *found)
            return
        leaves = [(t, both.ampc_of[key]) for key, t in both.torch_of.items() if t.requires_grad]
        found = None if drawn else self.gradients(theirs, ours, lambda convert: again(before, ta, tk, convert), leaves, (t, a))
        if found:
            yield self.told(dtype, way + ", gradient", sample, *found)
            return
        for name, t in theirs.state_dict().items():  # running statistics
            found = difference(t, ours.state_dict()[name], strides=False)
            if found:
                yield self.told(dtype, f"{way}, {name}", sample, *found)

    def gradients(self, theirs: Any, ours: Any, rerun: Any, leaves: Any, results: Any) -> Any:
        """Of inputs and parameters."""
        pairs = [(x, y) for x, y in zip(tensors(results[0]), tensors(results[1])) if x.requires_grad]
        leaves = leaves + [(p, dict(ours.named_parameters())[name]) for name, p in theirs.named_parameters() if p.requires_grad]
        if not pairs or not leaves:
            return None
        self.count += 1
        seeds, t, a, unlike = gradients_beside(pairs, leaves)
        if t is None:
            return unlike

        def reference(convert: Any) -> Any:
            given, wanted = rerun(convert)
            outs = [x for x in tensors(given) if x.requires_grad]
            found = torch.autograd.grad(outs, wanted, [convert(s).to(x.dtype) for s, x in zip(seeds, outs)], allow_unused=True)
            return found if len(found) == len(t) else None

        return difference(t, a, strides=False, reference=reference)

    def errors(self) -> Iterator[Difference]:
        if self.info.module_error_inputs_func is None:
            return
        torch.manual_seed(0)
        for case in self.info.module_error_inputs_func(self.info, device="cpu", dtype=torch.float32, requires_grad=False, training=True):
            sample = case.module_error_input
            try:
                theirs, ours, t_error, a_error = self.made(torch.float32, True, sample)
                if t_error is None and a_error is None:
                    both, given = Sample(), sample.forward_input
                    _, t_error = outcome(theirs, *both.for_torch(given.args), **both.for_torch(given.kwargs))
                    _, a_error = outcome(ours, *both.for_ampc(given.args), **both.for_ampc(given.kwargs))
            except Inexpressible:
                continue
            self.count += 1
            if t_error is not None and not same_error(t_error, a_error):
                yield self.told("", "error", sample, "exception", told(t_error), told(a_error))


def again(module: Any, args: Any, kwargs: Any, convert: Any) -> Tuple[Any, Any]:
    """What torch's module gives for converted operands, with converted parameters and buffers; and what gradients are asked of."""
    module = copy.deepcopy(module)
    for x in (*module.parameters(), *module.buffers()):
        if x.dtype.is_floating_point:
            x.data = convert(x)
    args, kwargs = converted((args, kwargs), convert)
    inputs = [x.requires_grad_() for x in tensors(args) + tensors(list(kwargs.values())) if x.is_floating_point()]
    return module(*args, **kwargs), [*inputs, *(p for p in module.parameters() if p.requires_grad)]


def modules(most: int = 0) -> Iterator[Module]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        yield Module(info, most)
