"""What several commands use."""

from __future__ import annotations

import argparse
import os
from typing import Any, Optional, Tuple

_EXAMPLES = "examples:\n"


class HelpFormatter(argparse.HelpFormatter):
    """Wraps descriptions, and leaves the lines of ``examples`` as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


def examples(*rows: str) -> str:
    """The end of a command's ``--help``. A row is a command line; two spaces or more stand before a remark."""
    return _EXAMPLES + "\n".join(f"  {row}" for row in rows)


def autocast_and_scaler(precision: str, device: str, **options: Any) -> Tuple[Any, Any]:
    """What a training loop needs for a precision. autocast has an effect in 16 bits, the GradScaler (with ``options``) in float16."""
    import ampc

    kind, low = ampc.device(device).type, precision != "float32"
    region = ampc.autocast(kind, dtype=getattr(ampc, precision) if low else None, enabled=low)
    return region, ampc.amp.GradScaler(kind, enabled=precision == "float16", **options)


def must_be_writable(*paths: Optional[str]) -> None:
    """OSError where a file cannot be written, before work whose result would be lost. None is no file."""
    for path in paths:
        if path is None or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)):
            continue  # a pipe would wait for its reader
        new, folder = not os.path.exists(path), os.path.dirname(path)
        if folder and not os.path.exists(folder):
            raise FileNotFoundError(f"{path} cannot be written: there is no folder {folder}; make it, or name another file")
        try:
            with open(path, "a"):
                pass
        except OSError as error:
            why = "it is a folder" if os.path.isdir(path) else error.strerror
            raise type(error)(f"{path} cannot be written: {why}; name another file") from None
        if new:
            os.remove(path)
