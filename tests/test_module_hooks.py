"""Hooks of modules beside torch's: where they are kept, when they run, what they may return, and loading that modules do themselves."""

import collections
import copy
import warnings

import pytest

import ampc

KEPT = """
h = lambda *a: None
handle = m.register_forward_hook(h)
note(m._forward_hooks[handle.id] is h, type(m._forward_hooks), dict(m._forward_hooks_with_kwargs), dict(m._forward_hooks_always_called))
handle = m.register_forward_hook(h, with_kwargs=True, always_call=True, prepend=True)
note(list(m._forward_hooks)[0] == handle.id, list(m._forward_hooks_with_kwargs.values()), list(m._forward_hooks_always_called.values()))
handle.remove()
note(len(m._forward_hooks), len(m._forward_hooks_with_kwargs), len(m._forward_hooks_always_called))
handle = m.register_forward_pre_hook(h, with_kwargs=True)
note(m._forward_pre_hooks[handle.id] is h, list(m._forward_pre_hooks_with_kwargs.values()))
handle.remove()
note(len(m._forward_pre_hooks), len(m._forward_pre_hooks_with_kwargs), m._is_full_backward_hook, m._get_backward_hooks())
note(list(copy.deepcopy(m)._forward_hooks.values()) == [h])
"""
PUT_THERE = """
m._forward_hooks[123] = lambda m, a, o: o * 0 + 5
m._forward_pre_hooks[124] = lambda m, a: note("before")
note(m(x).tolist())
m._forward_pre_hooks, m._forward_hooks = OrderedDict(), OrderedDict()
note(m(x).tolist() == m.forward(x).tolist())
handle = T.utils.hooks.RemovableHandle(m._forward_hooks)
m._forward_hooks[handle.id] = lambda m, a, o: note("mine")
m(x), handle.remove(), m(x)
"""
OF_ALL = """
M = T.nn.modules.module
handles = [M.register_module_forward_hook(lambda m, a, k, o: note(sorted(k)), with_kwargs=True, always_call=True),
           M.register_module_full_backward_hook(lambda m, i, o: (i[0] * 2,)), M.register_module_forward_pre_hook(lambda *a: None)]
try:
    note(len(M._global_forward_hooks), len(M._global_forward_hooks_with_kwargs), len(M._global_backward_hooks), len(M._global_forward_pre_hooks))
    m(input=x)
    m(x).sum().backward()
    note(x.grad.tolist())
    M.register_module_backward_hook(lambda *a: None)
finally:
    for handle in handles:
        handle.remove()
    note(len(M._global_forward_hooks), len(M._global_forward_hooks_always_called), len(M._global_backward_hooks))
"""
OWN_LOADING = """
class Renamed(nn.Linear):
    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        note(prefix, dict(local_metadata), strict, sorted(state_dict))
        if prefix + "w" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        note(self.weight.tolist())
m = nn.Sequential(Renamed(2, 1, bias=False), nn.Linear(1, 1, bias=False))
note(m.load_state_dict({"0.w": T.ones(1, 2), "1.weight": T.zeros(1, 1)}), m[1].weight.tolist())
m.load_state_dict({"0.w": T.ones(1, 2), "0.q": T.ones(1), "1.weight": T.zeros(1, 1)}, strict=False, assign=True)
m.load_state_dict({"0.q": T.ones(1, 2), "1.weight": T.zeros(1, 1)})
"""
CASES = {
    "kept": KEPT, "put there": PUT_THERE, "of all": OF_ALL, "own loading": OWN_LOADING,
    "both kinds": "m.register_full_backward_hook(lambda *a: None); note(m._is_full_backward_hook); m.register_backward_hook(lambda *a: None)",
    "both kinds the other way": "m.register_backward_hook(lambda *a: None); note(m._is_full_backward_hook); m.register_full_backward_hook(lambda *a: None)",
    "no pair": "m.register_forward_pre_hook(lambda m, a, k: 5, with_kwargs=True); m(x)",
    "a list": "m.register_forward_pre_hook(lambda m, a, k: [a, k], with_kwargs=True); m(x)",
    "three": "m.register_forward_pre_hook(lambda m, a, k: (a, k, 3), with_kwargs=True); m(x)",
    "always after a pre-hook": "m.register_forward_pre_hook(lambda *a: 1 / 0); m.register_forward_hook(lambda m, a, o: note(o), always_call=True); m(x)",
    "a list of gradients": "m.register_full_backward_hook(lambda m, i, o: [i[0] * 2]); m(x).sum().backward(); note(x.grad.tolist())",
    "no gradient": "m.register_full_backward_pre_hook(lambda m, o: (None,)); m(x).sum().backward(); note(x.grad.tolist())",
    "before state_dict": "m.register_state_dict_pre_hook(lambda m, p, k: note(p, k)); m.state_dict(); nn.Sequential(m).state_dict(keep_vars=True)",
    "after state_dict": "m.register_state_dict_post_hook(lambda m, d, p, l: note(p, dict(l))); nn.Sequential(m).state_dict()",
    "returns a dict": "m._register_state_dict_hook(lambda m, d, p, l: {'a': 1}); note(m.state_dict(), list(nn.Sequential(m).state_dict()))",
    "must not return a dict": "m.register_state_dict_post_hook(lambda m, d, p, l: {'a': 1}); m.state_dict()",
    "twice": "f = lambda m, d, p, l: None; m.register_state_dict_post_hook(f); m._register_state_dict_hook(f)",
    "wrapped": "m._register_load_state_dict_pre_hook(lambda *a: note(len(a))); (h,) = m._load_state_dict_pre_hooks.values(); note(h.with_module); h(1, 2, 3)",
    "wrapped with the module": "m.register_load_state_dict_pre_hook(lambda n, *a: note(n is two)); two = copy.deepcopy(m); two.load_state_dict(m.state_dict())",
    "unexpected": "m.register_load_state_dict_pre_hook(lambda m, s, p, l, strict, missing, unexpected, e: unexpected.append('x')); m.load_state_dict(m.state_dict())",
    "errors": "m.register_load_state_dict_pre_hook(lambda m, s, p, l, strict, missing, unexpected, e: e.append('x')); m.load_state_dict(m.state_dict(), strict=False)",
    "only its own": "m.register_load_state_dict_pre_hook(lambda m, s, *a: note(sorted(s))); nn.Sequential(m, m).load_state_dict(nn.Sequential(m, m).state_dict())",
    "assigned": "p = nn.Parameter(T.zeros(1, 2)); m.bias.requires_grad_(False); m.load_state_dict({'weight': p, 'bias': T.ones(1)}, assign=True); note(m.weight is p, m.bias.requires_grad)",
    "a number of old": "m.n = nn.Parameter(T.tensor(1.0)); m.load_state_dict({**m.state_dict(), 'n': T.tensor([3.0])}); note(m.n.tolist())",
    "put in place": "s = nn.Sequential(m); s.set_submodule('0', nn.ReLU()); s.set_submodule('new', nn.ReLU()); note(repr(s)); s.set_submodule('a.b', nn.ReLU())",
    "nothing to replace": "nn.Sequential(m).set_submodule('5', nn.ReLU(), strict=True)",
    "no module there": "nn.Sequential(m).set_submodule('0.weight', nn.ReLU())",
    "no module given": "nn.Sequential(m).set_submodule('0', 3)", "no path": "m.set_submodule('', nn.ReLU())",
    "not a module": "s = nn.Sequential(m); s.a = m; s.a = 3", "not a parameter": "m.weight = nn.ReLU()",
    "further bases": """
class Base:
    def __init__(self, a): self.a = a
class M(nn.Module, Base):
    call_super_init = True
    def __init__(self): super().__init__(a=3)
note(M().a)""",
    "members": "note([n for n, _ in m._named_members(lambda module: module._parameters.items(), prefix='x')])",
    "type": "m.type('torch.DoubleTensor'); note(str(m.weight.dtype).split('.')[1]); m.type(T.float32); note(str(m.weight.dtype).split('.')[1])",
    "the same gradient": "g = m.weight.grad = T.ones(1, 2); m.zero_grad(set_to_none=False); m.double(); note(g is m.weight.grad, g.tolist(), str(g.dtype).split('.')[1])",
}


def outcome(library, script):
    notes = []
    m = library.nn.Linear(2, 1)
    with library.no_grad():
        m.weight.fill_(1.0)
        m.bias.fill_(2.0)
    names = {"T": library, "nn": library.nn, "m": m, "x": library.ones(1, 2, requires_grad=True), "copy": copy, "OrderedDict": collections.OrderedDict,
             "note": lambda *what: notes.append(repr(what))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(script, names)
        except Exception as error:
            notes.append(type(error).__name__)
    return notes


@pytest.mark.parametrize("what", CASES)
def test_as_torch(torch, what):
    assert outcome(ampc, CASES[what]) == outcome(torch, CASES[what])


def test_nothing_is_loaded_where_something_does_not_fit():
    model = ampc.nn.Sequential(ampc.nn.Linear(1, 1), ampc.nn.Linear(1, 1))
    before = [p.tolist() for p in model.parameters()]
    with pytest.raises(RuntimeError, match=r"1\.weight"):
        model.load_state_dict({**{k: v + 1 for k, v in model.state_dict().items()}, "1.weight": ampc.ones(3)})
    assert [p.tolist() for p in model.parameters()] == before


def test_a_module_without_hooks_keeps_no_dicts_for_those_seldom_used():
    layer = ampc.nn.Linear(1, 1)
    layer.load_state_dict(layer.state_dict())
    layer(ampc.ones(1))
    assert "_state_dict_hooks" not in layer.__dict__ and layer._state_dict_hooks == {} and "_state_dict_hooks" in layer.__dict__


TOGETHER = {
    "all at once": "(c.sum() + d.sum()).backward(); (c.sum() + d.sum()).backward()",
    "some at the end": "c.sum().backward()",
    "one that is asked for": "c.sum().backward(inputs=(a,))",
    "another pass afterwards": "c.sum().backward(); d.sum().backward()",
    "an error between": "a.register_hook(bad); note(fails(lambda: c.sum().backward())); bad.on = False; (c.sum() + d.sum()).backward()",
    "taken off": "c.sum().backward(); handle.remove(); d.sum().backward()",
}


@pytest.mark.parametrize("mode", ["all", "any"])
@pytest.mark.parametrize("name", TOGETHER)
def test_one_hook_for_several_tensors(torch, name, mode):
    def seen(lib):
        told = []

        def bad(grad):
            if bad.on:
                raise ArithmeticError("not now")

        def fails(f):
            with pytest.raises(ArithmeticError):
                f()
            return "failed"

        def keep(grads):
            told.append(grads.tolist() if mode == "any" else [g if g is None else g.tolist() for g in grads])

        bad.on = True
        a, b = (lib.tensor([1.0, 2.0], requires_grad=True), lib.tensor([3.0, 4.0], requires_grad=True))
        c, d = a * b, a + b
        handle = lib.autograd.graph.register_multi_grad_hook((a, b, c, d), keep, mode=mode)
        text = TOGETHER[name].replace(".backward(", ".backward(retain_graph=True, ")
        exec(text, {"a": a, "b": b, "c": c, "d": d, "handle": handle, "bad": bad, "note": told.append, "fails": fails})
        return told

    ours, theirs = seen(ampc), seen(torch)
    if mode == "any":  # which gradient comes first is not defined
        ours, theirs = len(ours), len(theirs)
    assert ours == theirs
    with pytest.raises(ValueError, match="mode"):
        ampc.autograd.graph.register_multi_grad_hook((), print, mode="some")


def test_a_handle_shows_where_its_hook_is_kept(torch):
    for lib in (ampc, torch):
        layer = lib.nn.Linear(1, 1)
        handle = layer.register_forward_hook(print, always_call=True)
        assert handle.hooks_dict_ref() is layer._forward_hooks and handle.hooks_dict_ref()[handle.id] is print
        assert {handle.id: True} == layer._forward_hooks_always_called in [kept() for kept in handle.extra_dict_ref]
