"""docs/compatibility.md says what the code has."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_document_is_up_to_date():
    got = subprocess.run([sys.executable, str(ROOT / "tools" / "compatibility.py"), "--check"], capture_output=True, text=True)
    assert got.returncode == 0, got.stdout + got.stderr
