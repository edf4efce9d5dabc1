"""What a notebook shows: HTML of tensors and scalers, signatures and completion of the core's functions, and the example notebook."""

import inspect
import math
import os
from pathlib import Path

import pytest
from where import ON_GPU

import ampc
from ampc import nn

ROOT = Path(__file__).resolve().parent.parent


def test_tensors_say_what_they_are():
    text = ampc.tensor([[1.0, -2.5], [math.inf, math.nan]]).half()._repr_html_()
    assert "2x2, float16, " in text and "8 bytes" in text and "from -2.5 to 1" in text and "2 not finite" in text and "-2.5000" in text
    w = nn.Parameter(ampc.ones(3))
    assert "requires grad" in w._repr_html_() and "made by mul" in (w * 2)._repr_html_() and "not finite" not in w._repr_html_()
    assert "one number, int64" in ampc.tensor(3)._repr_html_() and "0 bytes" in ampc.ones(0)._repr_html_()
    assert "&lt;" in (w * 2)._repr_html_()  # text is text


def test_scalers_say_where_they_stand():
    p, s = nn.Linear(2, 1), ampc.amp.GradScaler("cuda" if ON_GPU else "cpu", init_scale=2.0**20)
    assert repr(s) == f"GradScaler('{'cuda' if ON_GPU else 'cpu'}', scale 1048576, 0 of 2000 good steps to the next growth, 0 steps)"
    assert repr(ampc.amp.GradScaler(enabled=False)) == "GradScaler(enabled=False)"
    opt = ampc.optim.SGD(p.parameters(), lr=0.1)
    s.scale(p(ampc.ones(1, 2)).sum() * math.inf).backward()
    s.step(opt)
    s.update()
    assert "scale 524288" in s._repr_html_() and "1 skipped" in s._repr_html_()


def test_every_public_function_has_a_signature_and_is_completed():
    def without(owner):
        found = []
        for name in dir(owner):
            if name.startswith("_") or isinstance(getattr(owner, name), type) or not callable(getattr(owner, name)):
                continue
            try:
                inspect.signature(getattr(owner, name))
            except ValueError:
                found.append(name)
        return found
    assert without(ampc) == [] and without(ampc.Tensor) == [] and without(nn.functional) == []
    assert str(inspect.signature(ampc.add)) == "(x, other, *, alpha=1)" and list(inspect.signature(ampc.Tensor.size).parameters) == ["self", "dim"]
    assert {"softmax", "Policy", "enable_autocast", "keras", "training", "bench"} <= set(dir(ampc)) and {"sum", "half"} <= set(dir(ampc.Tensor))


@pytest.mark.skipif(ON_GPU, reason="the notebook is on the CPU")
def test_the_notebook_runs(monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("PYTHONPATH", str(Path(ampc.__file__).parent.parent) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    book = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    html = [o["data"]["text/html"] for o in shown if "text/html" in o.get("data", {})]
    assert not [o for o in shown if o["output_type"] == "error"]
    for text in ("Tensor", "GradScaler", "Policy", "finding", "of peak", "Cell In[5], line 3: exp returned inf", "Cell In[6], line 2: ", "data:image/png;base64"):
        assert any(text in h for h in html), text
