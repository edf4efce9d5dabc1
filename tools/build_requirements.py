"""Installs what pyproject.toml names for building, so that builds need no environment of their own each time; and its extras that are
given, without the package itself: python tools/build_requirements.py test"""

import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())
extras = [requirement for name in sys.argv[1:] for requirement in project["project"]["optional-dependencies"][name]]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *project["build-system"]["requires"], *project["project"]["dependencies"], *extras]))
