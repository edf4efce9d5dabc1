"""Versions that compare by their numbers, against torch's and the order of packages."""

import itertools
import operator

import pytest
from packaging.version import Version

from ampc.torch_version import TorchVersion

IN_ORDER = ["1.9", "2.0.0.dev3", "2.0.0a1.dev2", "2.0.0a1", "2.0.0-beta.2", "2.0rc1", "2", "2.0+cpu", "2.0.0+cu121", "2.0+cu121.1", "2.0.post1", "2.4.1", "2.13.0", "v10.1"]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_the_order_is_that_of_packages(compare):
    for a, b in itertools.product(IN_ORDER, IN_ORDER):
        want = compare(Version(a), Version(b))
        assert compare(TorchVersion(a), b) == compare(TorchVersion(a), TorchVersion(b)) == compare(TorchVersion(a), Version(b)) == want, (a, b)


@pytest.mark.parametrize("compare", COMPARISONS[:5], ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", ["2.4", "2.13", "2.13.0", "2.13.1", "no version", "", (2,), (2, 13), [2, 13, 0], (3, 0), ("2", "4"), "2.13.0+cpu", "2.13.0.dev1"], ids=str)
def test_comparisons_are_torchs(torch, compare, other):
    for text in ("2.13.0", "2.13.0+cpu", *(["neither"] if isinstance(other, str) else [])):
        assert compare(TorchVersion(text), other) == compare(torch.torch_version.TorchVersion(text), other)


def test_it_is_text():
    version = TorchVersion("2.13.0")
    assert isinstance(version, str) and version.split(".")[:2] == ["2", "13"] and {version: 1}["2.13.0"] == 1 and f"{version}" == "2.13.0"
    with pytest.raises(TypeError):
        assert version < 3
