"""What the package says about itself, and the licences of what it brings along."""

import re
import sys
from pathlib import Path

import pytest

import ampc

ROOT, HOME = Path(__file__).resolve().parent.parent, Path(ampc.__file__).parent


def test_openblas_comes_with_its_licence():
    """Beside the library, where a wheel has it: OpenBLAS, LAPACK and the Fortran runtime want their texts to go with them."""
    if not list(HOME.glob("_libs/*openblas*")):
        pytest.skip("this build has no OpenBLAS")
    text = (HOME / "_libs" / "LICENSE.txt").read_text(encoding="utf-8")
    for words in ("The OpenBLAS Project", "LAPACK", "Redistributions in binary form", "GCC RUNTIME LIBRARY EXCEPTION"):
        assert words in text, words


def test_data_comes_with_its_licence():
    assert "CC BY 4.0" in (HOME / "data" / "README.md").read_text(encoding="utf-8") and (HOME / "data" / "digits.npz").exists()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reads TOML")
def test_what_an_index_shows():
    import tomllib

    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, packaged = about["project"], about["tool"]["setuptools"]["package-data"]["ampc"]
    assert project["license"] == "Apache-2.0" and "Apache License" in (ROOT / project["license-files"][0]).read_text(encoding="utf-8")
    assert project["authors"] and project["version"] == ampc.__version__ and (ROOT / project["readme"]).exists()
    assert {"py.typed", "*.pyi", "_libs/*", "data/*.md"} <= set(packaged) and "Typing :: Typed" in project["classifiers"]
    assert not [c for c in project["classifiers"] if c.startswith("License ::")]  # the SPDX expression stands for them
    oldest = re.fullmatch(r">=3\.(\d+)", project["requires-python"]).group(1)
    minors = [int(c.rsplit(".", 1)[1]) for c in project["classifiers"] if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", c)]
    assert minors == list(range(int(oldest), minors[-1] + 1))
    assert about["tool"]["cibuildwheel"]["build"].split() == [f"cp3{n}-*" for n in minors]
