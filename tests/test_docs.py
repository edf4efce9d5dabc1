"""Every Python block of the README and of docs/ runs, a page's blocks one after the other; their links lead somewhere."""

import re
from pathlib import Path

import pytest
from where import ON_GPU

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]  # those of docs/rules/ are run by test_guard and test_check


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)


@pytest.mark.skipif(ON_GPU, reason="they say 'cpu'")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_blocks_run(page, world, switches_back, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import ampc

    data = [(ampc.randn(16, 64), y) for _, y in world.batches]
    names = {"__name__": "page", "batches": data, "loader": data, "criterion": world.criterion, "model": world.model, "optimizer": world.optimizer}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)


def test_pages_have_blocks():
    assert {p.name for p in PAGES if blocks(p)} >= {"README.md", "index.md", "migration.md", "numerics.md", "performance.md", "troubleshooting.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
