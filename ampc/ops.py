"""torch.ops: operators by name. ``ops.aten.add.Tensor`` is the operator of ampc's table, and ``ops.mine.f`` one that ``library`` has registered.

An overload, such as ``Tensor`` or ``dim_IntList``, is accepted where torch has one of that name for some operator: ampc's operators read all
kinds of arguments, so all overloads of one are the same function."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _C, _ops
from ._C import Tensor
from ._names.missing import closest, proposal
from .nn import functional

OVERLOADS = frozenset(re.findall(r"\w+", """
    default out Tensor Tensor_out Scalar Scalar_out int int_out dim dim_out dims dims_out dim_IntList dim_int IntList_out Dimname float bool str
    input Scalar_Tensor Tensor_Scalar Scalar_Tensor_out Tensor_Scalar_out Tensor_Tensor Tensor_Tensor_out Scalar_Scalar generator generator_out
    dtype dtype_out dtype_layout device other prim_Device periodic periodic_out data array Scalar_mode Tensor_mode values values_stable
    correction correction_out x dx a other_scalar self_scalar other_scalar_out self_scalar_out padding memory_format value src reduce
    value_reduce value_out src_out value_reduce_out two two_out unary_out scalar scalar_out stable stable_out output U hacked_twin Tensor_list
    List ScalarList
    enum intlist decimals decimals_out out_mode all_out dim_values dim_max dim_min max min start start_out start_step step padding_idx vec
    ord_str ord_str_out atol_rtol_tensor atol_rtol_float rcond_tensor p_str self self_out ScalarOther ScalarSelf inverse eigvals low low_out
    low_generator sizes from to dim_dtype indices sections tensor_indices_or_sections using_ints using_ints_out mode hint hint_out names p_dim
    ScalarOpt_dim ScalarOpt_dtype ScalarOpt_dim_dtype device_with_index Tensor_with_index bins_tensor bin_ct grad_input msg
    Tensor_indices_sections
"""))


def _index(self: Tensor, indices: Any) -> Tensor:
    return self[tuple(slice(None) if i is None else i for i in indices)]


def _slice(self: Tensor, dim: int = 0, start: Optional[int] = None, end: Optional[int] = None, step: int = 1) -> Tensor:
    return self[(slice(None),) * (dim % max(self.ndim, 1)) + (slice(start, end, step),)]


def _to_copy(self: Tensor, *, dtype: Any = None, device: Any = None, non_blocking: bool = False, **others: Any) -> Tensor:
    return self.to(device=device, dtype=dtype, non_blocking=non_blocking, copy=True)


# Operators of torch's core whose arguments come in another order than their functions' in nn.functional, and are not read here.
NOT_HERE = frozenset({"embedding_bag", "binary_cross_entropy", "nll_loss", "mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss",
                      "soft_margin_loss", "multi_margin_loss", "multilabel_margin_loss", "kl_div", "pad", "interpolate", "tensordot",
                      "fractional_max_pool2d", "fractional_max_pool3d", "warn", "absent_from"})

# Operators of torch's core that ampc has in other words.
IN_OTHER_WORDS: Dict[str, Callable[..., Any]] = {
    "_local_scalar_dense": Tensor.item, "_log_softmax": lambda self, dim, half_to_float=False: _ops.log_softmax(self, dim),
    "_pin_memory": Tensor.pin_memory, "_softmax": lambda self, dim, half_to_float=False: _ops.softmax(self, dim),
    "_sparse_addmm": _ops.addmm,  # of matrices that are dense, as all are here
    "_to_copy": _to_copy, "_unsafe_view": Tensor.reshape,
    "alias": lambda self: self.view(self.shape), "index": _index, "lift_fresh": lambda self: self,
    "slice": _slice, "sym_numel": Tensor.numel, "sym_size": Tensor.size, "sym_stride": Tensor.stride,
}


def _function(name: str) -> Optional[Callable[..., Any]]:
    """The function or method of ampc with a name of torch's core; None where there is none."""
    if name in IN_OTHER_WORDS:
        return IN_OTHER_WORDS[name]
    if name in NOT_HERE:
        return None
    top: Any = sys.modules["ampc"]
    if name in vars(top) or name in top._FROM or name.startswith("_foreach_"):
        found = getattr(top, name, None)
    else:
        area, _, rest = name.partition("_")
        places = [_C._functions, vars(functional), vars(Tensor)]
        if area in ("linalg", "special"):
            places.insert(0, {name: vars(getattr(top, area)).get(rest)})
        found = next((place[name] for place in places if place.get(name) is not None), None)
    return found if callable(found) and not isinstance(found, (type, ModuleType)) else None


class OpOverload:
    """One overload of an operator. Calling it calls the operator."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket, self._overloadname = packet, overload
        self.namespace, self.__name__ = packet.namespace, f"{packet.__name__}.{overload}"

    @property
    def _schema(self) -> Any:
        schema = getattr(self.overloadpacket, "schema", None)
        if schema is None:
            raise AttributeError(f"ops.{self}: operators of ampc's core have no schema of torch's form")
        return schema

    @property
    def tags(self) -> List[Any]:
        """What was given as ``tags`` where the operator was defined; [] for one of the core."""
        return list(getattr(self.overloadpacket, "tags", ()))

    def name(self) -> str:
        """Such as 'aten::add.Tensor'; without '.default'."""
        return f"{self.namespace}::{self.overloadpacket.__name__}" + ("" if self._overloadname == "default" else f".{self._overloadname}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._overloadname.endswith("out") and "out" not in kwargs:
            raise RuntimeError(f"{self.name()}() is missing value for argument 'out'")
        return self.overloadpacket(*args, **kwargs)

    def __reduce__(self) -> Tuple[Any, ...]:
        return getattr, (self.overloadpacket, self._overloadname)

    def __str__(self) -> str:
        return f"{self.overloadpacket}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"


class OpOverloadPacket:
    """An operator by its name. Calling it calls the operator; its attributes are its overloads."""

    def __init__(self, namespace: str, name: str, function: Optional[Callable[..., Any]] = None) -> None:
        self.namespace, self.__name__, self._function = namespace, name, function

    def _has_overload(self, name: str) -> bool:
        return name in OVERLOADS

    def overloads(self) -> List[str]:
        """['default']: the others are accepted as well, and are the same function."""
        return ["default"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "self" in kwargs and not args:
            args = (kwargs.pop("self"),)
        assert self._function is not None
        return self._function(*args, **kwargs)

    def __reduce__(self) -> Tuple[Any, ...]:
        """A copy, and what a pickle gives, is the operator of that name."""
        return getattr, (_namespace(self.namespace), self.__name__)

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._has_overload(name):
            raise AttributeError(f"ops.{self}: has no overload `{name}`")
        self.__dict__[name] = made = OpOverload(self, name)
        return made

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


class Namespace:
    """The operators of one namespace, as attributes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Tuple[Any, ...]:
        return _namespace, (self.name,)

    def __getattr__(self, name: str) -> OpOverloadPacket:
        function = _function(name) if self.name in ("aten", "prims") and not name.startswith("__") else None
        if function is None:
            near = closest(name, _C._functions) if self.name == "aten" and not name.startswith("_") else None
            raise AttributeError(f"ops.{self.name}: has no operator `{name}`{proposal(near)}")
        self.__dict__[name] = made = OpOverloadPacket(self.name, name, function)
        return made

    def __repr__(self) -> str:
        return f"<namespace '{self.name}' of ampc.ops>"


def _namespace(name: str) -> Namespace:
    found: Namespace = getattr(sys.modules[__name__], name)
    return found


class _Classes:
    """torch.classes: classes of C++ libraries for torch, of which none can be loaded here."""

    __path__: List[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _ClassNamespace(name)

    def load_library(self, path: Any) -> None:
        """OSError: such a library calls torch's own core."""
        load_library(path)


class _ClassNamespace:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"Tried to instantiate class '{self._name}.{name}', but it does not exist! Ensure that it is registered via torch::class_")


classes = _Classes()
loaded_libraries: set = set()


def load_library(path: Any) -> None:
    """OSError: libraries of operators for torch call torch's own core, which is not here."""
    raise OSError(f"torch.ops.load_library: {path} is made for torch's core and cannot be loaded into ampc; operators in Python are "
                  "registered with torch.library.custom_op")


def __getattr__(name: str) -> Namespace:
    """A namespace, empty where nothing is registered in it."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = Namespace(name)
    return made
