"""Installs what pyproject.toml names for building, so that builds need no environment of their own each time."""

import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

text = (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text()
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *tomllib.loads(text)["build-system"]["requires"]]))
