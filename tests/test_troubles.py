"""The corpus of troubles: its labels are whole, and ampc's diagnosis of its scripts is right, but for those of troubles/open.txt."""

import ast
import os
import re
from pathlib import Path

import pytest
from references import part
from troubles import corpus, judge
from troubles.pair import pairs, read

pytestmark = pytest.mark.cpu
KNOWN = corpus.still_open()


@pytest.mark.parametrize("path", [*pairs(), *pairs(held_out=True)], ids=lambda p: p.stem)
def test_a_pair_is_two_scripts_with_a_label(path):
    pair = read(path)
    assert pair.here and pair.label["cause"] in judge.CAUSES and pair.words("fix") and pair.broken != pair.mended
    assert all(cause in judge.CAUSES for cause in pair.words("also"))
    for text in (pair.broken, pair.mended):
        assert "import torch" in text and len(text.splitlines()) <= 80
        ast.parse(text)


def test_what_is_open_exists():
    assert set(KNOWN) <= {s.name for s in corpus.scripts()} and all(KNOWN.values())


def test_the_page_names_what_is_open():
    page = (Path(__file__).parent.parent / "docs" / "diagnosis.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == {name.split()[0] for name in KNOWN}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process for each script is made by fork")
def test_a_drawn_part_is_diagnosed_rightly(tmp_path):
    wrong, mended = [], []
    for script, result in corpus.run("ampc", part(corpus.scripts(), 12), tmp_path):
        said = corpus.is_wrong(script, result)
        if said and script.name not in KNOWN:
            wrong.append((script.name, *said))
        elif not said and script.name in KNOWN:
            mended.append(script.name)
    assert not wrong
    assert not mended, "these are diagnosed rightly now: take them out of troubles/open.txt"
