"""Progress of long work, on standard error: tqdm's bars where it is installed, else one line that is overwritten."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any, Callable, Dict, Iterable, Iterator, Optional

from .._process.launcher import is_first

PAUSE = 0.1  # seconds between two updates at a line
LINES = 10.0  # seconds between two lines where nobody watches


def somebody_watches() -> bool:
    """Whether standard error is a terminal; it is None where a program was started without one."""
    return sys.stderr is not None and sys.stderr.isatty()


class _Line:
    """What of tqdm's bar is used here, without tqdm."""

    def __init__(self, items: Iterable[Any], desc: str, total: Optional[int]) -> None:
        self._items, self._text = items, desc
        self._total = getattr(items, "__len__", lambda: None)() if total is None else total
        self._done, self._beside, self._shown = 0, "", -PAUSE

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._show()
            yield item
            self._done += 1
        self._write("")

    def set_postfix_str(self, text: str, refresh: bool = True) -> None:
        self._beside = text
        self._show(refresh)

    def set_postfix(self, numbers: Dict[str, str], refresh: bool = True) -> None:
        self.set_postfix_str(", ".join(f"{k}={v}" for k, v in numbers.items()), refresh)

    def _show(self, now: bool = False) -> None:
        if now or time.monotonic() - self._shown >= PAUSE:
            self._shown = time.monotonic()
            count = self._done if self._total is None else f"{self._done}/{self._total}"
            self._write(f"{self._text}: {count} {self._beside}")

    @staticmethod
    def _write(text: str) -> None:
        room = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be written over
        sys.stderr.write(f"\r{text[:room]:<{room}}\r{text[:room]}")
        sys.stderr.flush()


def _bar(items: Iterable[Any], text: str, total: Optional[int]) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return _Line(items, text, total)
    return tqdm(items, desc=text, total=total, leave=False)


class Progress:
    """Goes through ``items`` and shows how far it is; ``note(loss=...)`` shows numbers beside the bar.

    ``name`` returns the text for an item, which is shown before the item is done. If standard error is no terminal, a line is printed
    whenever the first word of that text changes, and now and then. So the output of a killed process shows how far it came. Of several
    processes of a script the first shows it."""

    def __init__(self, items: Iterable[Any], text: str, total: Optional[int] = None, shown: bool = True,
                 name: Optional[Callable[[Any], str]] = None) -> None:
        self._items, self._text, self._name, self._bar = items, text, name, None
        shown = shown and is_first()
        self._lines = shown and name is not None and sys.stderr is not None
        if shown and somebody_watches():
            self._bar = self._items = _bar(items, text, total)

    @property
    def is_shown(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items) if self._name is None else self._named(self._name)

    def _named(self, name: Callable[[Any], str]) -> Iterator[Any]:
        told, begin = "", 0.0
        for item in self._items:
            words = name(item)
            if self._bar is not None:
                self._bar.set_postfix_str(words)
            elif self._lines and (words.split(",")[0] != told or time.monotonic() - begin >= LINES):
                print(f"{self._text}: {words}", file=sys.stderr, flush=True)
                told, begin = words.split(",")[0], time.monotonic()
            yield item

    def note(self, numbers: Dict[str, float]) -> None:
        """Shows them."""
        if self._bar is not None:
            self._bar.set_postfix({k: f"{v:.4g}" for k, v in numbers.items()}, refresh=False)
