"""What a notebook shows: HTML of tensors and scalers, signatures and completion of the core's functions, and the example notebook."""

import inspect
import math
import os
import warnings
from html.parser import HTMLParser
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
    assert "requires grad" in w._repr_html_() and "made by MulBackward0" in (w * 2)._repr_html_() and "not finite" not in w._repr_html_()
    assert "one number, int64" in ampc.tensor(3)._repr_html_() and "0 bytes" in ampc.ones(0)._repr_html_()
    assert "&lt;" in (w * 2)._repr_html_()  # text is text


def test_scalers_say_where_they_stand():
    p, s = nn.Linear(2, 1), ampc.amp.GradScaler("cuda" if ON_GPU else "cpu", init_scale=2.0**20)
    assert repr(s) == f"GradScaler('{'cuda' if ON_GPU else 'cpu'}', scale 1048576, 0 of 2000 good steps to the next growth, 0 steps)"
    assert repr(ampc.amp.GradScaler(enabled=False)) == "GradScaler(enabled=False)"
    opt = ampc.optim.SGD(p.parameters(), lr=0.1)
    s.scale(p(ampc.ones(1, 2)).sum()).backward()
    p.weight.grad.fill_(math.inf)
    s.step(opt)
    s.update()
    assert "scale 524288" in s._repr_html_() and "1 skipped" in s._repr_html_()


class Page(HTMLParser):
    """The tables, paragraphs and items of a page whose tags match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.texts = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in ("p", "b", "table", "tr", "th", "td", "ol", "li", "pre", "img"), tag
        if tag != "img":
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag in ("p", "pre"):
            self.texts.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "table" in self.open:
            self.tables[-1][-1][-1] += data
        else:
            self.texts[-1] += data


STEP = """
net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10))
opt, scaler = ampc.optim.SGD(net.parameters(), lr=0.1), ampc.amp.GradScaler("cpu")
x, target = ampc.randn(32, 64), ampc.randint(0, 10, (32,))
with ampc.explain() as explained:
    with ampc.autocast("cpu", dtype=ampc.float16):
        loss = nn.functional.cross_entropy(net(x), target) + net(x).exp().mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
advice = ampc.doctor.advise(net, (x, target), nn.CrossEntropyLoss(), opt, steps=2, scaler=scaler)
with ampc.doctor() as found:
    with ampc.autocast("cpu", dtype=ampc.float16):
        (net(x * 1e6).float() * 0).sum()
    ampc.zeros(3).log().sum()
with ampc.doctor() as calm:
    net(x).exp().sum()
"""
NAME = "<i>train & test"  # as of a script; a shell's is <stdin>


@pytest.fixture(scope="module")
def reports():
    names = {"ampc": ampc, "nn": nn}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(STEP, NAME, "exec"), names)
    return {k: names[k] for k in ("explained", "advice", "found", "calm")}


@pytest.mark.skipif(ON_GPU, reason="one way is enough")
@pytest.mark.parametrize("which, heads", [
    ("explained", ["operator|computed in|calls|ms|reason", "cast from|to|calls|ms|MB", "location|product|times|why it gains little"]),
    ("advice", ["precision|ms a step|peak MB|last loss|gradient error|skipped|room to overflow", "loss scale|gradient values that float16 rounds to 0",
                "dtype|location|operator|relative error|largest result|room to overflow"]),
    ("found", ["input|dtype|shape|lowest|highest"] * 2),
    ("calm", ["location|operator|dtype|largest result|times below the dtype's largest value"])])
def test_reports_have_columns(reports, which, heads):
    """Each table is whole, names are escaped, and what the text says is there, too."""
    page = Page(reports[which]._repr_html_())
    assert ["|".join(t[0]) for t in page.tables] == heads
    assert all(len(row) == len(t[0]) for t in page.tables for row in t) and all(len(t) > 1 for t in page.tables)
    everything = "\n".join([*page.texts, *(cell for t in page.tables for row in t for cell in row)])
    assert f"{NAME}:" in everything
    said, shown = ([word.strip("():,;%.") for word in text.split()] for text in (str(reports[which]), everything))
    assert {word for word in said if word.replace(".", "", 1).isdigit()} <= set(shown)


@pytest.mark.skipif(ON_GPU, reason="one way is enough")
def test_a_doctors_report_is_text_and_more(reports):
    for doctor in reports["found"], reports["calm"]:
        report = doctor.report()
        assert isinstance(report, str) and report == repr(report) == str(doctor) and report._repr_html_() == doctor._repr_html_()
    finding = reports["found"].findings[0]
    assert "<p><b>fix:</b> " in finding._repr_html_() and "spread through" in finding._repr_html_()
    display = pytest.importorskip("IPython.core.formatters").DisplayFormatter()
    shown, _ = display.format(reports["found"].report())
    assert shown["text/html"] == reports["found"]._repr_html_() and shown["text/plain"] == str(reports["found"])


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
    for text in ("Tensor", "GradScaler", "Policy", "finding", "of peak", "Cell In[5], line 3: exp returned inf", "Cell In[6], line 2<", "data:image/png;base64"):
        assert any(text in h for h in html), text
