"""Optimizers that a script defines on Optimizer: what load_state_dict does with their state and options, against torch's."""

import pytest

import ampc


def own(library, **more):
    """A class of momentum whose state is made like the parameter, a list of tensors, a string and a number among it."""

    class Own(library.optim.Optimizer):
        def __init__(self, params, lr=0.5, table=None):
            super().__init__(params, {"lr": lr, "table": [[0], [1]] if table is None else table})

        def step(self, closure=None):
            with library.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        if not state:
                            state.update(momentum=library.zeros_like(p), pair=[library.ones_like(p), (library.ones_like(p), 2)], turn=3,
                                         count=library.zeros(1, dtype=library.int64))
                        state["momentum"].mul_(0.5).add_(p.grad)
                        p.sub_(state["momentum"], alpha=group["lr"])

    return type("Own", (Own,), more)


def stepped(library, cls, dtype="float32", groups=1):
    """Parameters and their optimizer after one step."""
    params = [library.nn.Parameter(library.ones(2, dtype=getattr(library, dtype))) for _ in range(2)]
    for p in params:
        p.grad = library.ones_like(p)
    optimizer = cls(params if groups == 1 else [{"params": [p]} for p in params])
    optimizer.step()
    return params, optimizer


def dtypes(library, value):
    """The dtypes of a state's tensors by name, in the structure of the state."""
    if isinstance(value, library.Tensor):
        return str(value.dtype).split(".")[-1]
    if isinstance(value, dict):
        return {k: dtypes(library, v) for k, v in value.items()}
    return type(value)(dtypes(library, v) for v in value) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(("dtype", "saved"), [("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "bfloat16"), ("float64", "float32")])
def test_the_state_of_an_own_class_takes_the_dtype_of_the_parameter(torch, dtype, saved):
    """Tensors in lists and tuples, too. An own class makes its state again like that, and its step expects it so."""
    found = []
    for library in (torch, ampc):
        cls = own(library)
        (p, _), optimizer = stepped(library, cls, dtype)
        optimizer.load_state_dict(stepped(library, cls, saved)[1].state_dict())
        found.append(dtypes(library, dict(optimizer.state[p])))
        optimizer.step()
        found[-1] = found[-1], p.detach().float().tolist()
    assert found[0] == found[1]
    assert found[1][0]["momentum"] == dtype and found[1][0]["pair"][1] == (dtype, 2)


def test_a_class_that_steps_by_super_keeps_the_state_of_the_class_below():
    class Named(ampc.optim.Adam):
        def step(self, closure=None):
            return super().step(closure)

    (p, _), optimizer = stepped(ampc, Named, "bfloat16")
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.state[p]["exp_avg"].dtype == ampc.float32


def test_loading_calls_setstate_with_the_loaded_state(torch):
    """A class corrects there what it has loaded. Hooks stay."""
    found = [loaded_and_stepped(library) for library in (torch, ampc)]
    assert found[0] == found[1]
    assert found[1][0] == [["param_groups", "state"]] and found[1][1] == [True, "step"]


def loaded_and_stepped(library):
    """What an optimizer whose __setstate__ corrects its state calls, notes and computes."""
    calls, hooked = [], []

    def corrected(self, state):
        library.optim.Optimizer.__setstate__(self, state)
        calls.append(sorted(state))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["momentum"] = self.state[p]["momentum"].double()

    (p, _), optimizer = stepped(library, own(library, __setstate__=corrected))
    optimizer.register_load_state_dict_post_hook(lambda opt: hooked.append(opt.state[p]["momentum"].dtype == library.float64))
    optimizer.register_step_post_hook(lambda *given: hooked.append("step"))
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    return calls, hooked, dtypes(library, dict(optimizer.state[p])), p.tolist()


def test_groups_share_after_loading_what_they_shared_before(torch):
    """An option such as a table is one object of both groups, as in the optimizer that was saved; but not that optimizer's own."""
    for library in (torch, ampc):
        cls = own(library)
        before = stepped(library, cls, groups=2)[1]
        after = stepped(library, cls, groups=2)[1]
        after.load_state_dict(before.state_dict())
        one, two = after.param_groups
        assert one["table"] is two["table"] is not before.param_groups[0]["table"], library.__name__
        assert one["table"] == [[0], [1]]


def test_an_optimizer_around_another_may_add_defaults(torch):
    """What it added is not asked for in a state that the inner optimizer saved before."""
    for library in (torch, ampc):
        p = library.nn.Parameter(library.ones(2))
        inner = library.optim.AdamW([p], lr=0.25)
        saved = inner.state_dict()
        inner.defaults.update(pace=0.5)
        for group in inner.param_groups:
            group.setdefault("pace", 0.5)
        inner.load_state_dict(saved)
        assert inner.param_groups[0]["lr"] == 0.25


def test_tensors_by_device_and_dtype_as_optimizers_of_libraries_group_them(torch):
    def grouped(library):
        a, b, c = (library.ones(n, dtype=d) for n, d in ((1, library.float32), (2, library.float16), (3, library.float32)))
        got = library.optim.Optimizer._group_tensors_by_device_and_dtype([[a, b, c], [c, None, a], []], with_indices=True)
        return {str(dtype).split(".")[1]: ([[None if t is None else len(t) for t in column] for column in columns], indices)
                for (_, dtype), (columns, indices) in got.items()}

    assert grouped(ampc) == grouped(torch)
