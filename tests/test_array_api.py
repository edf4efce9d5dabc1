"""The array API standard's own suite, where it lies on this machine (tests/array_api/README.md); and the lists of what it is expected to refuse."""

import os
from pathlib import Path

import pytest

import ampc

pytest.importorskip("hypothesis")

from array_api.__main__ import MODULES, run  # noqa: E402

LISTS = Path(__file__).parent / "array_api"


@pytest.mark.parametrize("which", MODULES)
def test_suite(which):
    """A few examples for each of its 1,364 tests."""
    clone = os.environ.get("AMPC_ARRAY_API_TESTS")
    if not clone:
        pytest.skip("AMPC_ARRAY_API_TESTS does not say where array-api-tests lies")
    assert run(clone, which, examples=5) == 0


@pytest.mark.parametrize("which", MODULES)
def test_lists(which):
    """Each test is listed once, behind a reason; nothing of the standard is listed for the namespace but what torch's operators are."""
    text = (LISTS / f"{which}.txt").read_text()
    names = [line.removeprefix("~ ") for line in text.splitlines() if line and line[0] != "#"]
    assert len(names) == len(set(names)) and all(name.startswith("test_") for name in names)
    assert all(group.startswith("# ") and group.count("\n") for group in text.strip().split("\n\n"))
    assert which == "top" or len(names) < 60


def test_the_top_has_what_the_suite_asks_for():
    from array_api.namespaces import top

    assert top.equal is ampc.eq and top.sum is ampc.sum and top.__name__ == "ampc"
