"""A value of torch's as one of ampc's, and a function of torch's samples as the same function of ampc."""

from __future__ import annotations

import types
from typing import Any, Callable, Dict, Optional

import torch

import ampc

DTYPES = {getattr(torch, name): getattr(ampc, name)
          for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")}
FORMATS = {getattr(torch, name): getattr(ampc, name, None)
           for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d", "strided")}
ABSENT = {torch.complex32, torch.complex64, torch.complex128, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr,
          torch.sparse_bsc, torch._mkldnn, torch.uint16, torch.uint32, torch.uint64, torch.quint8, torch.qint8, torch.qint32}
MOST_DIMS = 12  # of ampc


class Inexpressible(Exception):
    """The sample holds what ampc does not have: complex, sparse or quantised tensors."""


def twin(t: torch.Tensor) -> torch.Tensor:
    """A leaf of its own memory with the strides of `t`."""
    if t.ndim > MOST_DIMS or t.layout is not torch.strided or t.dtype not in DTYPES or t.is_quantized or t.device.type != "cpu" or type(t) not in (torch.Tensor, torch.nn.Parameter):
        raise Inexpressible
    plain = t.detach()
    if 0 in plain.stride() or any(s > 1 for s in plain.shape) and torch._debug_has_internal_overlap(plain) == 1:
        whole = plain.as_strided(tuple(1 if s == 0 else n for n, s in zip(plain.shape, plain.stride())), plain.stride()).clone()
        copy = whole.expand(plain.shape)
    else:
        copy = torch.zeros(reach(plain), dtype=plain.dtype).as_strided(plain.shape, plain.stride()).copy_(plain)
    return copy.requires_grad_(t.requires_grad)


def reach(t: torch.Tensor) -> int:
    """How many elements of memory it spans; those between its own are the same, 0, for both libraries."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else 0


class Sample:
    """A sample's arguments twice: for torch, and the same for ampc."""

    def __init__(self, *values: Any) -> None:
        self.torch_of: Dict[int, torch.Tensor] = {}
        self.ampc_of: Dict[int, Any] = {}
        self.kept = values  # their identities are the keys
        self.values = values

    def for_torch(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.torch_of:
                self.torch_of[id(value)] = twin(value)
            return self.torch_of[id(value)]
        return walk(value, self.for_torch)

    def for_ampc(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.ampc_of:
                self.ampc_of[id(value)] = to_ampc(twin(value))
            return self.ampc_of[id(value)]
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return constant(value)
        if isinstance(value, torch.device):
            return ampc.get_default_device()
        if isinstance(value, (torch.Generator, complex)):
            raise Inexpressible
        if isinstance(value, dict) and value.get("device") == "cpu":
            value = {**value, "device": ampc.get_default_device()}
        return walk(value, self.for_ampc)


def constant(value: Any) -> Any:
    if value in ABSENT:
        raise Inexpressible
    found = DTYPES.get(value, FORMATS.get(value))
    if found is None:
        raise Inexpressible
    return found


def walk(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple):
        return type(value)(*map(convert, value)) if hasattr(value, "_fields") else tuple(map(convert, value))
    if isinstance(value, list):
        return list(map(convert, value))
    if isinstance(value, dict):
        return {key: convert(item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(convert(value.start), convert(value.stop), convert(value.step))
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) and getattr(convert, "__name__", "") == "for_ampc":
        return retarget(value) if isinstance(value, types.FunctionType) else of_ampc(value)
    if isinstance(value, torch.nn.Module) and getattr(convert, "__name__", "") == "for_ampc":
        return module_like(value)
    return value


def module_like(m: torch.nn.Module) -> Any:
    """ampc's module of the same class: a layer of a transformer, or one without parameters, whose attributes are copied."""
    found = getattr(ampc.nn, type(m).__name__, None)
    if isinstance(m, (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)):
        return layer_like(m)
    if found is None or any(True for _ in m.parameters()) or any(True for _ in m.children()):
        raise Inexpressible
    mine = found()
    for name, value in vars(m).items():
        if not name.startswith("_"):
            setattr(mine, name, value)
    return mine


def layer_like(m: Any) -> Any:
    """Its values are others: what is made of it gets torch's."""
    attention, first = m.self_attn, m.linear1
    return getattr(ampc.nn, type(m).__name__)(attention.embed_dim, attention.num_heads, first.out_features, m.dropout.p, of_ampc(m.activation), m.norm1.eps,
                                              attention.batch_first, m.norm_first, bias=first.bias is not None, dtype=DTYPES[first.weight.dtype])


def to_ampc(t: torch.Tensor) -> Any:
    plain = t.detach()
    if plain.ndim > 16:  # more than a tensor of ampc can have
        raise Inexpressible
    if ampc.get_default_device().type == "cpu":
        return ampc.from_dlpack(plain).requires_grad_(t.requires_grad)
    memory = ampc.from_dlpack(plain.as_strided((reach(plain),), (1,))).to(ampc.get_default_device())
    return memory.as_strided(plain.shape, plain.stride()).detach().requires_grad_(t.requires_grad)


def to_torch(t: Any) -> torch.Tensor:
    return torch.from_dlpack(t.detach().cpu())


def retarget(f: types.FunctionType, depth: int = 0) -> types.FunctionType:
    """A Python function that calls torch, calling ampc instead: what it names `torch` or `F`, and functions beside it, too."""
    names = {**f.__globals__}
    for name in f.__code__.co_names + tuple(n for c in f.__code__.co_consts if isinstance(c, types.CodeType) for n in c.co_names):
        value = names.get(name)
        if isinstance(value, types.FunctionType) and value.__module__ == f.__module__ and depth < 4 and value is not f:
            names[name] = retarget(value, depth + 1)
        elif isinstance(value, types.ModuleType) and value.__name__.split(".")[0] == "torch":
            names[name] = module_of(value)
    cells = tuple(types.CellType(of_ampc(c.cell_contents, depth)) for c in f.__closure__ or ())
    new = types.FunctionType(f.__code__, names, f.__name__, f.__defaults__, cells)
    new.__kwdefaults__ = f.__kwdefaults__
    return new


def module_of(module: types.ModuleType) -> Any:
    found: Any = ampc
    for part in module.__name__.split(".")[1:]:
        found = getattr(found, part)
    return found


def of_ampc(value: Any, depth: int = 0) -> Any:
    """What a closure holds, of ampc."""
    if isinstance(value, types.FunctionType) and (value.__module__ or "").startswith("torch.testing"):
        return retarget(value, depth + 1)
    if callable(value) and not isinstance(value, type):
        name = getattr(value, "__name__", "")
        return by_name(name) or by_name("nn.functional." + name) or value
    return value


def by_name(dotted: str) -> Optional[Callable[..., Any]]:
    """A public function or method of ampc by torch's name for it."""
    found: Any = ampc
    for part in dotted.split("."):
        found = getattr(found, part, None)
        if found is None:
            return getattr(ampc.Tensor, dotted, None) if "." not in dotted else None
    return found
