"""torch.compile of a module: another module that has it as _orig_mod, beside torch's."""

import copy
import io

import pytest

import ampc


def net(library):
    class Net(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = library.nn.Linear(2, 2), 0

        def forward(self, x, twice=False):
            self.calls += 1
            return self.layer(x) * (2 if twice else 1)

        def loss(self, x):
            return self(x).sum()

        @property
        def width(self):
            return self.layer.in_features

    return Net()


@pytest.fixture
def pairs(torch):
    """Each library with a module and what compile makes of it."""
    made = []
    for library in (torch, ampc):
        model = net(library)
        made.append((library, model, library.compile(model, backend="eager")))
    return made


def test_names_begin_with_that_of_the_module(pairs):
    for library, model, compiled in pairs:
        assert compiled._orig_mod is model and isinstance(compiled, library.nn.Module) and not isinstance(compiled, type(model))
        assert type(compiled).__name__ == "OptimizedModule" and isinstance(compiled, library._dynamo.eval_frame.OptimizedModule)
        assert list(compiled.state_dict()) == ["_orig_mod.layer.weight", "_orig_mod.layer.bias"]
        assert [name for name, _ in compiled.named_modules()] == ["", "_orig_mod", "_orig_mod.layer"]
        assert [p is q for p, q in zip(compiled.parameters(), model.parameters())] == [True, True]
        state = {name: library.zeros_like(value) for name, value in compiled.state_dict().items()}
        compiled.load_state_dict(state)
        assert model.layer.weight.abs().sum().item() == 0
        with pytest.raises(RuntimeError, match="_orig_mod"):
            model.load_state_dict(state)


def test_attributes_are_those_of_the_module(pairs):
    for library, model, compiled in pairs:
        compiled.note = 3
        assert model.note == 3 and "note" not in compiled.__dict__ and compiled.width == 2 and compiled.loss.__self__ is model
        del compiled.note
        assert not hasattr(model, "note") and not hasattr(compiled, "note")
        compiled.more = library.nn.Parameter(library.ones(1))
        assert [name for name, _ in model.named_parameters()][0] == "more" and "_orig_mod.more" in compiled.state_dict()
        assert {"width", "_orig_mod", "layer", "state_dict"} <= set(dir(compiled))
        with pytest.raises(AttributeError, match="Net"):
            _ = compiled.nothing
        with pytest.raises(TypeError, match="len"):
            len(compiled)
    assert [len(library.compile(library.nn.Sequential(library.nn.ReLU()))) for library, _, _ in pairs] == [1, 1]


def test_it_trains_and_evaluates_with_the_module(pairs):
    for _, model, compiled in pairs:
        assert compiled.training
        assert compiled.eval() is compiled and not model.training and not model.layer.training and not compiled.training
        model.train()
        assert compiled.training


def test_calls_pass_through_both_with_their_hooks(pairs):
    for library, model, compiled in pairs:
        seen = []
        compiled.register_forward_hook(lambda *given, seen=seen: seen.append("outer"))
        model.register_forward_hook(lambda *given, seen=seen: seen.append("inner"))
        compiled.register_forward_pre_hook(lambda module, given, options, seen=seen: seen.append(sorted(options)), with_kwargs=True)
        x = library.ones(1, 2)
        assert library.equal(compiled(x, twice=True), 2 * model(x))
        assert seen == [["twice"], "inner", "outer", "inner"]
        library.manual_seed(0)
        compiled(x).sum().backward()
        assert model.layer.weight.grad.tolist() == [[1, 1], [1, 1]]
        assert compiled.double() is compiled and model.layer.weight.dtype == library.float64
        if library is ampc:
            assert model.calls == 3


def test_copies(pairs):
    for library, model, compiled in pairs:
        copied = copy.deepcopy(compiled)
        assert type(copied) is type(compiled) and copied._orig_mod is not model and list(copied.state_dict()) == list(compiled.state_dict())
        kept = io.BytesIO()
        library.save(compiled.state_dict(), kept)
        kept.seek(0)
        copied.load_state_dict(library.load(kept))
        assert library.equal(copied.layer.weight, model.layer.weight)
        averaged = library.optim.swa_utils.AveragedModel(compiled)
        assert "module._orig_mod.layer.weight" in averaged.state_dict()


def test_a_module_that_is_compiled_in_place_stays(torch):
    for library in (torch, ampc):
        model = net(library)
        model.compile(backend="eager")
        assert list(model.state_dict()) == ["layer.weight", "layer.bias"] and not hasattr(model, "_orig_mod")
