"""docs/compatibility.md, and the pages that it leads to, say what the code has."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "docs" / "compatibility"


def test_the_pages_are_up_to_date():
    got = subprocess.run([sys.executable, str(ROOT / "tools" / "compatibility.py"), "--check"], capture_output=True, text=True)
    assert got.returncode == 0, got.stdout + got.stderr


def test_the_readme_has_the_newest_counts():
    """Of packages that train, of programs that run, of how-tos and examples."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    scripts = json.loads((KEPT / "libraries.json").read_text())["scripts"].values()
    programs = json.loads((KEPT / "public_programs.json").read_text())["programs"]
    assert f"scripts of {len({s['package'] for s in scripts if not s.get('disagrees', True)})} packages" in readme
    assert f"{sum(p['passed'] for p in programs)} programs of public repositories run" in readme
    words = ("six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    assert f"{words[len(list((ROOT / 'docs' / 'howto').glob('*.md'))) - 6]} [how-tos]" in readme.lower()
    assert f"{words[len(list((ROOT / 'examples').glob('*.py'))) - 6]} short scripts" in readme
