"""Names of dtypes that tensors cannot have here. Scripts and libraries mention them in tables and comparisons."""

from __future__ import annotations

from .._names.place import shown_name

__all__ = [
    "cdouble", "cfloat", "chalf", "complex128", "complex32", "complex64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "uint16", "uint32", "uint64",
]


class AbsentDtype:
    """A dtype by name alone. Making a tensor of it is a TypeError, as for anything that is no dtype."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize
        self.is_complex, self.is_floating_point, self.is_signed = name.startswith("c"), name.startswith("f"), not name.startswith("u")

    def __repr__(self) -> str:
        return shown_name(f"ampc.{self.name}")


complex32, complex64, complex128 = AbsentDtype("complex32", 4), AbsentDtype("complex64", 8), AbsentDtype("complex128", 16)
uint16, uint32, uint64 = (AbsentDtype(f"uint{8 * n}", n) for n in (2, 4, 8))
float8_e4m3fn, float8_e5m2 = AbsentDtype("float8_e4m3fn", 1), AbsentDtype("float8_e5m2", 1)
float8_e4m3fnuz, float8_e5m2fnuz = AbsentDtype("float8_e4m3fnuz", 1), AbsentDtype("float8_e5m2fnuz", 1)
chalf, cfloat, cdouble = complex32, complex64, complex128
