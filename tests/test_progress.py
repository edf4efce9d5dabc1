"""Bars of long work: shown to somebody who watches, nothing otherwise."""

import functools
import io
import sys

import pytest

import ampc
from ampc._messages.progress import Progress


@pytest.fixture
def at_once(monkeypatch):
    """tqdm without its pause between two updates."""
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm, "tqdm", functools.partial(tqdm.tqdm, mininterval=0))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_where_somebody_watches(monkeypatch, at_once):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Progress(range(3), "epoch 1/2", 3)
    for _ in bar:
        assert bar.is_shown
        bar.note({"loss": 0.123456})
    assert "epoch 1/2" in terminal.getvalue() and "3/3" in terminal.getvalue()


@pytest.mark.parametrize("kind, shown", [(io.StringIO, True), (Terminal, False)])
def test_nothing_in_a_file_or_when_silenced(monkeypatch, kind, shown):
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)
    bar = Progress(iter([1, 2]), "work", shown=shown)
    bar.note({"loss": 1.0})
    assert list(bar) == [1, 2] and not bar.is_shown and stream.getvalue() == ""


def test_a_line_without_tqdm(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    bar = Progress([1, 2], "work", name=lambda item: f"item {item}")
    assert list(bar) == [1, 2] and bar.is_shown
    assert "work: 0/2 item 1" in terminal.getvalue() and "work: 1/2 item 2" in terminal.getvalue() and "\n" not in terminal.getvalue()
    numbers = Progress(iter([1]), "work")
    for _ in numbers:
        numbers.note({"loss": 0.5})
    assert "work: 0" in terminal.getvalue() and terminal.getvalue().endswith("\r")


def test_lines_where_nobody_watches(monkeypatch):
    """One where the first word changes."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(Progress("aabb", "work", name=lambda item: f"{item}, more")) == list("aabb")
    assert stream.getvalue() == "work: a, more\nwork: b, more\n"


def test_fit_and_an_epoch_show_one(monkeypatch, capsys, at_once):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    model = ampc.keras.Sequential([ampc.keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse")
    model.fit(ampc.ones(8, 2), ampc.ones(8, 1), batch_size=2, epochs=2)
    assert "epoch 2/2" in terminal.getvalue() and "loss=" in terminal.getvalue() and capsys.readouterr().out.count("epoch") == 2
    net, data = ampc.nn.Linear(2, 1), [(ampc.ones(4, 2), ampc.ones(4, 1))] * 3
    ampc.training.TrainingOptimizer(ampc.training.AMPConfig(dtype="bfloat16")).train_epoch(net, data, ampc.nn.MSELoss(), ampc.optim.SGD(net.parameters(), lr=0.1))
    assert "epoch 1: " in terminal.getvalue() and "3/3" in terminal.getvalue()
