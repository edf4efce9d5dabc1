"""Which tests a run takes: --share and --cases of conftest.py, drawn by the run's seed."""

from types import SimpleNamespace

import conftest
import pytest
import references

pytestmark = pytest.mark.cpu
CASES = [*(f"test_a.py::test_many[{i}]" for i in range(60)), *(f"test_a.py::test_few[{i}]" for i in range(3)), "test_b.py::test_alone"]


class Collected:
    """A test as pytest has collected it."""

    def __init__(self, nodeid):
        self.nodeid = nodeid


@pytest.fixture
def drawn(monkeypatch):
    """The names of the cases that stay."""
    def draw(seed, **options):
        monkeypatch.setattr(references, "DRAWN", seed)
        left = []
        hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
        config = SimpleNamespace(getoption=lambda name: options.get(name[2:], 1), hook=hook)
        items = [Collected(name) for name in CASES]
        conftest.draw(config, items)
        assert sorted(i.nodeid for i in (*items, *left)) == sorted(CASES)
        return [i.nodeid for i in items]

    return draw


@pytest.mark.parametrize("option", ["share", "cases"])
def test_the_seed_draws(drawn, option):
    assert drawn(1, **{option: 4}) == drawn(1, **{option: 4}) != drawn(2, **{option: 4})
    assert drawn(1) == CASES and 8 <= len(drawn(1, **{option: 4})) < 30


def test_each_test_keeps_a_case(drawn):
    assert len(drawn(1, cases=4)) == 15 + 1 + 1
    assert [name.split("[")[0] for name in drawn(3, cases=1000)] == ["test_a.py::test_many", "test_a.py::test_few", "test_b.py::test_alone"]
