"""Safetensors files, whose header's metadata holds the structure around the tensors."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import re
from typing import Any, Dict, Tuple

from .._C import Tensor, uint8
from .._tensor.layout import with_attributes
from . import _structure
from ._bounds import EmptyFile, UnknownFormat, brief, damage
from ._restricted import Restricted
from ._safe import get_safe_globals
from ._tensors import DTYPES, Collection, Library, Mapper, from_bytes

_KEY = "ampc"


def _parts(obj: Any, protocol: int) -> Tuple[Dict[str, Tensor], Dict[str, str]]:
    """Tensors by name, and the header's text."""
    tensors = Collection()
    try:
        about: Dict[str, Any] = {"structure": _structure.encode(obj, tensors)}
    except _structure.NeedsPickle as needs:
        tensors = Collection()
        about = {"pickle": _pickled(obj, tensors, protocol), "tensors": [ref for _, ref, _ in tensors.found], "class": str(needs)}
    named = tensors.stored()
    return named, {_KEY: json.dumps({"version": 1, **about}, allow_nan=False, separators=(",", ":"))}


def _specs(named: Dict[str, Tensor]) -> Dict[str, Any]:
    import safetensors

    if hasattr(safetensors, "TensorSpec"):
        return {name: safetensors.TensorSpec(dtype=t.dtype.name, shape=list(t.shape), data_ptr=t.data_ptr(), data_len=t.numel() * t.element_size())
                for name, t in named.items()}
    return {name: {"dtype": t.dtype.name, "shape": list(t.shape), "data": t.reshape(-1).view(uint8).numpy().tobytes()} for name, t in named.items()}


def write(obj: Any, path: str, protocol: int) -> None:
    import safetensors

    named, text = _parts(obj, protocol)
    try:
        safetensors.serialize_file(_specs(named), path, text)
    except safetensors.SafetensorError as error:  # which tells the system's errors by their numbers
        found = re.search(r"\(os error (\d+)\)", str(error))
        if not found:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), path) from None


def to_bytes(obj: Any, protocol: int) -> bytes:
    import safetensors

    named, text = _parts(obj, protocol)
    return safetensors.serialize(_specs(named), text)


def _header(data: bytes, name: str) -> Dict[str, Any]:
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else len(data)
    if not data:
        raise EmptyFile(f"load: {name} is empty, or was read to its end before. A file object is read from its position on: call seek(0) first")
    if data[8:9] == b"{" and len(data) - 8 < size < 2**40:
        raise RuntimeError(f"load: {name} is damaged: it ends within its header, so it was cut off")
    if len(data) < 8 or size > len(data) - 8 or data[8:9] != b"{":
        raise UnknownFormat(f"load: {name} is neither a file that ampc.save wrote, nor a safetensors file, nor torch's")
    return json.loads(data[8:8 + size])


def _tensors(data: bytes, name: str) -> Dict[str, Tensor]:
    """The entries of the file; the library has checked that they fill it, each once."""
    import safetensors

    try:
        entries = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        raise RuntimeError(f"load: {name} is damaged: {error}") from error
    named = {}
    for key, entry in entries:
        if entry["dtype"] not in DTYPES:
            raise RuntimeError(f"load: {name} holds {brief(key)} as {entry['dtype']}, a type that ampc lacks")
        named[key] = from_bytes(entry["data"], DTYPES[entry["dtype"]], tuple(entry["shape"]))
    return named


def read(data: bytes, mapper: Mapper, trusted: bool, name: str) -> Any:
    with damage(name, mapper):
        header = _header(data, name)
        library = Library(_tensors(data, name), mapper)
        text = header.get("__metadata__", {}).get(_KEY)
        if text is None:
            return {key: library.get({"name": key}) for key in library.named}
        about = json.loads(text)
        if about["version"] != 1:
            raise RuntimeError(f"load: {name} was saved by a later version of ampc (format {brief(about['version'])})")
        if "structure" in about:
            return _structure.decode(about["structure"], library)
        if not trusted and not get_safe_globals():
            raise pickle.UnpicklingError(
                f"load: {name} holds {str(about['class'])[:200]}, which only unpickling brings back, and that runs whatever code the file asks for. "
                "If you trust where it came from, pass weights_only=False, or name its classes with serialization.add_safe_globals; better, save "
                "a state_dict")
        code = base64.b64decode(about["pickle"])
    kind = _Unpickler if trusted else _Restricted
    return kind(code, about["tensors"], library, name).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: Any, tensors: Collection, protocol: int) -> None:
        super().__init__(file, protocol)
        self.tensors, self.positions = tensors, {}  # type: Collection, Dict[int, int]

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor) or obj.is_meta or obj.__dict__:  # one on meta has no values to keep apart
            return None
        if id(obj) not in self.positions:
            self.positions[id(obj)] = len(self.tensors.found)
            _structure.reference(obj, self.tensors, "tensor")
        return self.positions[id(obj)]


    def reducer_override(self, obj: Any) -> Any:
        """A tensor with attributes is one without, which `persistent_id` sees, and these."""
        if not isinstance(obj, Tensor) or obj.is_meta or not obj.__dict__:
            return NotImplemented
        return with_state, (with_attributes(type(obj), obj.detach(), obj.requires_grad, {}),), dict(obj.__dict__)


def with_state(t: Tensor) -> Tensor:
    """The tensor itself, which gets its attributes next."""
    return t


def _pickled(obj: Any, tensors: Collection, protocol: int) -> str:
    out = io.BytesIO()
    _Pickler(out, tensors, protocol).dump(obj)
    return base64.b64encode(out.getvalue()).decode("ascii")


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, refs: Any, library: Library, file: str) -> None:
        super().__init__(io.BytesIO(data))
        self.file = file
        self.refs, self.library, self.made = refs, library, {}  # type: Any, Library, Dict[int, Tensor]

    def persistent_load(self, number: Any) -> Tensor:
        if number not in self.made:
            self.made[number] = self.library.get(self.refs[number])
        return self.made[number]


class _Restricted(_Unpickler, Restricted):
    """With the safe globals only."""
