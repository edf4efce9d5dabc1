"""Every way to call an operator of torch's database, by ampc and by torch, and how the two differ."""

from __future__ import annotations

import dataclasses
import functools
import types
import warnings
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch

import ampc
from ampc._names import modules as _library_modules

from .compare import difference
from .places import DIM_AT, gradient_at_places, values_at_places
from .translate import DTYPES, Inexpressible, Sample, by_name, retarget, to_ampc

RANDOM = {"bernoulli", "multinomial", "normal", "rand_like", "randn_like", "randint", "randint_like", "randn", "nn.functional.dropout",
          "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
          "nn.functional.rrelu", "empty", "empty_like", "new_empty", "resize_", "resize_as_", "empty_permuted", "empty_strided",
          "new_empty_strided", "uniform", "exponential", "cauchy", "geometric", "log_normal", "normal_in_place",
          "svd_lowrank", "pca_lowrank"}

PRIVATE = {"max_pool2d_with_indices_backward"}  # of torch's interior, without a public name


@dataclasses.dataclass
class Difference:
    operator: str  # torch's name, with its variant
    dtype: str
    way: str  # function, method, in place, operator, out=, gradient, strided, error
    sample: str
    kind: str  # exception, dtype, shape, value, type, strides, requires_grad, missing
    torch: str
    ampc: str

    def __str__(self) -> str:
        return f"{self.operator} ({self.dtype}, {self.way}): {self.kind}\n  {self.sample}\n  torch: {self.torch}\n  ampc:  {self.ampc}"


def function_of(op: Any) -> Optional[Callable[..., Any]]:
    """What ampc has for an entry of the database, or None where it lacks the name."""
    f = op.op
    named = _library_modules.entry_of("torch." + op.name)
    if op.name in PRIVATE or named is not None and named.kind == "refused":
        return None
    if isinstance(f, types.FunctionType) and f.__module__.startswith("torch.testing"):
        return retarget(f)
    if isinstance(f, types.MethodDescriptorType) or getattr(f, "__objclass__", None) is not None:
        return getattr(ampc.Tensor, f.__name__, None) or by_name(op.name)
    return by_name(op.name)


def method_of(f: Optional[Callable[..., Any]]) -> Optional[Callable[..., Any]]:
    if f is None:
        return None
    if isinstance(f, functools.partial):
        inner = method_of(f.func)
        return inner and functools.partial(inner, *f.args, **f.keywords)
    if isinstance(f, types.FunctionType) and f.__module__.startswith("torch.testing"):
        return retarget(f)
    if getattr(f, "__module__", "") == "torch.nn.functional":
        return by_name("nn.functional." + f.__name__)
    return getattr(ampc.Tensor, f.__name__, None)


def outcome(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Tuple[Any, Optional[BaseException]]:
    """What a call gives, and its exception; on a GPU, those that come later, too."""
    try:
        result = call(*args, **kwargs)
        if ampc.get_default_device().type == "cuda":
            ampc.cuda.synchronize()
        return result, None
    except Exception as e:  # noqa: BLE001
        return None, e


def short(value: Any, most: int = 300) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= most else text[:most] + " ..."


def ends(value: Any, most: int = 500) -> str:
    """The beginning and the end of a long text: keywords come last."""
    text = " ".join(str(value).split())
    return text if len(text) <= most else f"{text[:most - 150]} ... {text[-150:]}"


def told(error: Optional[BaseException]) -> str:
    return "no exception" if error is None else short(f"{type(error).__name__}: {error}", 240)


def same_error(theirs: Optional[BaseException], ours: Optional[BaseException]) -> bool:
    """Whether what catches torch's exception catches ampc's."""
    return type(ours).__name__ == type(theirs).__name__ or theirs is not None and isinstance(ours, type(theirs))


class Operator:
    """The checks of one entry of the database."""

    def __init__(self, op: Any, most: int = 0) -> None:
        """`most` samples of each dtype, spread over all of them; 0 takes all."""
        self.most = most
        self.op, self.name = op, op.name + (f" ({op.variant_test_name})" if op.variant_test_name else "")
        self.function = function_of(op)
        self.random = op.name in RANDOM
        self.count = 0

    def chance(self, sample: Any) -> bool:
        """Whether its numbers are drawn."""
        drawn_windows = self.name.startswith("nn.functional.fractional") and "_random_samples" not in sample.kwargs
        dropout = sample.args[9] if self.name == "nn.functional.multi_head_attention_forward" else sample.kwargs.get("dropout_p", 0)
        return self.random or drawn_windows or dropout > 0

    def dtypes(self) -> List[torch.dtype]:
        return [d for d in DTYPES if d in self.op.supported_dtypes("cpu")]

    def check(self, dtypes: Optional[List[torch.dtype]] = None) -> Iterator[Difference]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for dtype in dtypes or self.dtypes():
                yield from self.of_dtype(dtype)
            yield from self.errors()

    def samples(self, dtype: torch.dtype) -> List[Any]:
        torch.manual_seed(0)
        requires = self.op.supports_autograd and dtype in self.op.supported_backward_dtypes("cpu") and dtype.is_floating_point
        found = list(self.op.sample_inputs("cpu", dtype, requires_grad=requires))
        return found[::max(1, -(-len(found) // self.most))] if self.most else found

    def of_dtype(self, dtype: torch.dtype) -> Iterator[Difference]:
        for sample in self.samples(dtype):
            yield from self.of_sample(dtype, sample, "function")
            if any(isinstance(t, torch.Tensor) and t.ndim > 0 for t in (sample.input, *sample.args)):
                yield from self.of_sample(dtype, sample.noncontiguous(), "strided")

    def of_sample(self, dtype: torch.dtype, sample: Any, way: str) -> Iterator[Difference]:
        ways: List[Tuple[str, Any, Any]] = [(way, self.op.op, self.function)]
        if way == "function":
            ways += [("method", self.op.get_method(), method_of(self.op.get_method())),
                     ("in place", self.op.get_inplace(), method_of(self.op.get_inplace())),
                     ("operator", self.op.get_operator(), self.op.get_operator()),
                     ("in-place operator", self.op.get_inplace_operator(), self.op.get_inplace_operator())]
        for name, theirs, ours in ways:
            if theirs is None or "in" in name.split("-")[0].split() and sample.broadcasts_input:
                continue
            if ours is None:
                yield self.told(dtype, name, sample, "missing", "there", "no such name")
                continue
            yield from self.beside(dtype, sample, name, theirs, ours)
        if way == "function" and self.op.supports_out and self.function is not None:
            yield from self.into(dtype, sample)

    def told(self, dtype: Any, way: str, sample: Any, kind: str, theirs: Any, ours: Any) -> Difference:
        return Difference(self.name, str(dtype).split(".")[-1], way, ends(sample), kind, short(theirs), short(ours))

    def arguments(self, sample: Any) -> Any:
        """(args, kwargs) for torch, the same for ampc, and the leaves of both that gradients are asked of."""
        both = Sample()
        whole = ((sample.input, *sample.args), sample.kwargs)
        both.kept = whole
        theirs = both.for_torch(whole[0]), both.for_torch(whole[1])
        ours = both.for_ampc(whole[0]), both.for_ampc(whole[1])
        leaves = [(t, both.ampc_of[key]) for key, t in both.torch_of.items() if t.requires_grad]
        return theirs, ours, leaves

    def beside(self, dtype: Any, sample: Any, way: str, theirs: Any, ours: Any) -> Iterator[Difference]:
        try:
            (ta, tk), (aa, ak), leaves = self.arguments(sample)
        except Inexpressible:
            return
        written = way.startswith("in")
        if written:  # leaves are not written: a copy of each is
            ta, aa = (writable(ta[0]), *ta[1:]), (writable(aa[0]), *aa[1:])
        self.count += 1
        torch.manual_seed(0)
        t, t_error = outcome(theirs, *ta, **tk)
        if t_error is None and not expressible(t):
            return
        a, a_error = outcome(ours, *aa, **ak)
        if t_error is not None or a_error is not None:
            if not same_error(t_error, a_error):
                yield self.told(dtype, way, sample, "exception", told(t_error), told(a_error))
            return
        found = difference(*self.comparable(sample, ta, aa, t, a), values=not self.chance(sample), reference=lambda convert: self.again(sample, theirs, written, convert))
        if found:
            yield self.told(dtype, way, sample, *found)
            return
        if leaves and not self.chance(sample):
            yield from self.gradients(dtype, sample, way, t, a, leaves, theirs)

    def comparable(self, sample: Any, ta: Any, aa: Any, t: Any, a: Any) -> Tuple[Any, Any]:
        """The two results without what torch leaves open."""
        if self.op.name not in DIM_AT:
            return t, a
        return tuple(values_at_places(self.op.name, sample, x[0], found) for x, found in ((ta, t), (aa, a)))

    def again(self, sample: Any, theirs: Any, written: bool, convert: Any) -> Any:
        """What torch gives for converted operands."""
        args, kwargs = (converted(Sample().for_torch(x), convert) for x in ((sample.input, *sample.args), sample.kwargs))
        if written:
            args = (writable(args[0]), *args[1:])
        return theirs(*args, **kwargs)

    def gradients(self, dtype: Any, sample: Any, way: str, t: Any, a: Any, leaves: Any, theirs: Any) -> Iterator[Difference]:
        process = sample.output_process_fn_grad
        mine = retarget(process) if isinstance(process, types.FunctionType) else process
        t_out, failed = outcome(lambda: tensors(process(t)))
        a_out, error = outcome(lambda: tensors(mine(a)))
        if failed:
            return
        if error:
            yield self.told(dtype, way + ", gradient", sample, "exception", "no exception", told(error))
            return
        pairs = [(x, y) for x, y in zip(t_out, a_out) if x.requires_grad]
        if not pairs:
            return
        self.count += 1
        seeds, t_grads, a_grads, unlike = gradients_beside(pairs, leaves)
        if unlike:
            yield self.told(dtype, way + ", gradient", sample, *unlike)
        if t_grads is None:
            return
        if self.op.name in DIM_AT and not sample.kwargs.get("stable"):
            t_grads = [gradient_at_places(self.op.name, sample, leaves[0][0], a[1], seeds[0])]

        def reference(convert: Any) -> Any:
            both = Sample()
            args = both.for_torch((sample.input, *sample.args)), both.for_torch(sample.kwargs)
            made = {id(x): convert(x).requires_grad_() for x in both.torch_of.values() if x.requires_grad}
            args = converted(args, lambda x: made[id(x)] if id(x) in made else convert(x))
            if way.startswith("in"):
                args = ((writable(args[0][0]), *args[0][1:]), args[1])
            outs = [x for x in tensors(process(theirs(*args[0], **args[1]))) if x.requires_grad]
            return torch.autograd.grad(outs, list(made.values()), [convert(s).to(x.dtype) for s, x in zip(seeds, outs)], allow_unused=True)

        found = difference(t_grads, a_grads, strides=False, reference=reference)
        if found:
            yield self.told(dtype, way + ", gradient", sample, *found)

    def into(self, dtype: Any, sample: Any) -> Iterator[Difference]:
        """With out=: tensors of the result's shape, strided; and of a dtype that cannot take it."""
        try:
            (ta, tk), (aa, ak), _ = self.arguments(sample)
        except Inexpressible:
            return
        ta, tk, aa, ak = detached(ta), detached(tk), detached(aa), detached(ak)
        torch.manual_seed(0)
        t, t_error = outcome(self.op.op, *ta, **tk)
        if t_error is not None or not expressible(t) or not tensors(t):
            return
        for kind in ("strided", "integers"):
            room = [strided_like(x) if kind == "strided" else torch.zeros(x.shape, dtype=torch.int64) for x in tensors(t)]
            if kind == "integers" and not all(x.dtype.is_floating_point for x in tensors(t)):
                continue
            mine = [to_ampc(x.clone()) if kind == "integers" else to_ampc(strided_like(x)) for x in room]
            self.count += 1
            torch.manual_seed(0)
            _, t_error = outcome(self.op.op, *ta, **tk, out=room[0] if len(room) == 1 else tuple(room))
            a, a_error = outcome(self.function, *aa, **ak, out=mine[0] if len(mine) == 1 else tuple(mine))
            if t_error is not None or a_error is not None:
                if not same_error(t_error, a_error):
                    yield self.told(dtype, "out=, " + kind, sample, "exception", told(t_error), told(a_error))
                continue
            found = difference(*self.comparable(sample, ta, aa, room, mine), values=not self.chance(sample), reference=lambda convert: tensors(self.again(sample, self.op.op, False, convert)))
            if not found and len(mine) == 1 and a is not mine[0]:
                found = ("type", "out itself", "another tensor")
            if found:
                yield self.told(dtype, "out=, " + kind, sample, *found)

    def errors(self) -> Iterator[Difference]:
        if self.op.error_inputs_func is None or self.function is None:
            return
        try:
            wrong = list(self.op.error_inputs("cpu"))
        except Exception:  # noqa: BLE001  some need a GPU
            return
        for case in wrong:
            sample = case.sample_input
            try:
                (ta, tk), (aa, ak), _ = self.arguments(sample)
            except Inexpressible:
                continue
            self.count += 1
            _, t_error = outcome(self.op.op, *ta, **tk)
            if t_error is None:
                continue
            _, a_error = outcome(self.function, *aa, **ak)
            if not same_error(t_error, a_error):
                yield self.told("", "error", sample, "exception", told(t_error), told(a_error))


def gradients_beside(pairs: Any, leaves: Any) -> Tuple[List[torch.Tensor], Any, Any, Optional[Tuple[str, str, str]]]:
    """Of pairs of results, torch's and ampc's: (random gradients of the results, torch's gradients of the leaves, ampc's, how the
    exceptions differ). The gradients are None where a library raises."""
    torch.manual_seed(1)
    seeds = [torch.randn(x.shape, dtype=torch.float64).to(x.dtype) for x, _ in pairs]
    t, t_error = outcome(lambda: torch.autograd.grad([x for x, _ in pairs], [x for x, _ in leaves], seeds, allow_unused=True))
    a, a_error = outcome(lambda: ampc.autograd.grad([y for _, y in pairs], [y for _, y in leaves], [to_ampc(s) for s in seeds], allow_unused=True))
    if t_error is None and a_error is None:
        return seeds, list(t), list(a), None
    return seeds, None, None, None if same_error(t_error, a_error) else ("exception", told(t_error), told(a_error))


def tensors(value: Any) -> List[Any]:
    if isinstance(value, (torch.Tensor, ampc.Tensor)):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors(item)]
    return []


def expressible(value: Any) -> bool:
    return all(t.dtype in DTYPES and t.layout is torch.strided for t in tensors(value))


def writable(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(writable(y) for y in x)
    return x.clone() if isinstance(x, (torch.Tensor, ampc.Tensor)) else x


def detached(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(*map(detached, x)) if hasattr(x, "_fields") else type(x)(map(detached, x))
    if isinstance(x, dict):
        return {k: detached(v) for k, v in x.items()}
    return x.detach() if isinstance(x, (torch.Tensor, ampc.Tensor)) else x


def converted(x: Any, convert: Any) -> Any:
    """The same arguments with other floating point tensors."""
    if isinstance(x, (list, tuple)):
        return type(x)(converted(y, convert) for y in x)
    if isinstance(x, dict):
        return {k: converted(v, convert) for k, v in x.items()}
    return convert(x) if isinstance(x, torch.Tensor) and x.dtype.is_floating_point else x


def strided_like(x: Any) -> Any:
    """Zeros of its shape and dtype whose last dimension has a stride of 2."""
    if x.ndim == 0:
        return torch.zeros(x.shape, dtype=x.dtype)
    return torch.zeros((*x.shape[:-1], 2 * x.shape[-1]), dtype=x.dtype)[..., ::2]


def operators(most: int = 0) -> Iterator[Operator]:
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        yield Operator(op, most)
