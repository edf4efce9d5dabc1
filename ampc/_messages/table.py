"""Tables and text for terminals and notebooks; the first row of a table is the heading."""

from __future__ import annotations

import html
from typing import Container, List, Sequence

Rows = Sequence[Sequence[str]]


def text_lines(rows: Rows, left: Container[int]) -> List[str]:
    """One line for each row. Columns in ``left`` are aligned left, and the others, such as numbers, right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip() for row in rows]


def html_table(rows: Rows, left: Container[int]) -> str:
    """The same table as HTML."""
    def line(tag: str, row: Sequence[str]) -> str:
        cells = (f"<{tag} style='text-align:{'left' if i in left else 'right'}'>{html.escape(c)}</{tag}>" for i, c in enumerate(row))
        return f"<tr>{''.join(cells)}</tr>"

    return f"<table>{line('th', rows[0])}{''.join(line('td', row) for row in rows[1:])}</table>"


def html_text(*lines: str) -> str:
    """One paragraph for each line that is not empty."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)


class RichText(str):
    """Text that a notebook shows as HTML."""

    _html: str

    def __new__(cls, text: str, as_html: str) -> RichText:
        self = super().__new__(cls, text)
        self._html = as_html
        return self

    __repr__ = str.__str__

    def _repr_html_(self) -> str:
        return self._html
