"""docs/compatibility.md, and the pages that it leads to, say what the code has."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_pages_are_up_to_date():
    got = subprocess.run([sys.executable, str(ROOT / "tools" / "compatibility.py"), "--check"], capture_output=True, text=True)
    assert got.returncode == 0, got.stdout + got.stderr
