"""Progress of long work: tqdm's bars where it is installed and somebody watches, else nothing on the way."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, Iterator, Optional


def somebody_watches() -> bool:
    """Whether standard error is a terminal; it is None where a program was started without one."""
    return sys.stderr is not None and sys.stderr.isatty()


class Progress:
    """Goes through ``items`` and shows how far it is; ``note(loss=...)`` shows numbers beside the bar."""

    def __init__(self, items: Iterable[Any], text: str, total: Optional[int] = None, shown: bool = True) -> None:
        self._items, self._bar = items, None
        if shown and somebody_watches():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = self._items = tqdm(items, desc=text, total=total, leave=False)

    @property
    def is_shown(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def note(self, numbers: Dict[str, float]) -> None:
        """Shows them."""
        if self._bar is not None:
            self._bar.set_postfix({k: f"{v:.4g}" for k, v in numbers.items()}, refresh=False)
