"""Unpacks the GPU code of a build, for csrc/python/unpack.c."""

from __future__ import annotations


def unpacked(packed: bytes) -> bytes:
    """What a build packed by xz. RuntimeError where it is damaged, or Python has no lzma; MemoryError. What a signal's handler raises
    meanwhile, such as KeyboardInterrupt, stands as it is."""
    try:
        import lzma
    except ModuleNotFoundError as error:
        raise RuntimeError(f"unpacking the GPU code: {error}; it needs a Python with the module lzma, which is left out where Python was "
                           "compiled without the headers of liblzma") from None
    try:
        return lzma.decompress(packed)
    except lzma.LZMAError as error:
        raise RuntimeError(f"unpacking the GPU code: {error}; this installation of ampc is damaged: install it again") from None
    except MemoryError:
        raise MemoryError("unpacking the GPU code: the host has no memory for it") from None
