"""``python -m torch.distributed.launch``, the older name of ``torch.distributed.run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._names.missing import absent_from
from .run import get_args_parser, main, parse_args, run

__all__ = ["get_args_parser", "main", "parse_args", "run"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)

if __name__ == "__main__":
    main()
