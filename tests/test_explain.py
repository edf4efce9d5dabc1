"""ampc.explain: dtypes with the rules that chose them, casts counted in bytes, kept copies, products without tensor units."""

import warnings

import pytest
from where import ON_GPU

import ampc as torch
from ampc import policy

KIND, LOW = ("cuda", torch.float16) if ON_GPU else ("cpu", torch.bfloat16)
UNITS = ON_GPU or torch._C._has_units(torch.bfloat16)


def named(report):
    found = {}
    for r in report.ran:
        found.setdefault(r.op, []).append(r)
    return found


def region():
    return torch.autocast(KIND, dtype=LOW)


def test_operators_dtypes_and_rules():
    net, x = torch.nn.Linear(64, 64), torch.randn(64, 64)
    with torch.explain() as e:
        with region():
            y = net(x)
            loss = torch.nn.functional.mse_loss(y.relu(), torch.zeros(64, 64)) + y.exp().sum()
        loss.backward()
        torch.ones(3).exp()
    ran = named(e)
    low = str(LOW).split(".")[-1]
    assert (ran["linear"][0].dtype, ran["linear"][0].reason, ran["linear"][0].calls) == (low, "autocast: products in 16 bits", 1)
    assert (ran["relu"][0].dtype, ran["relu"][0].reason) == (low, "autocast: the inputs' dtype")
    rules = {r.reason: r for r in ran["exp"]}
    assert rules["autocast: sums, losses and norms in float32"].dtype == "float32" and rules["no autocast region: the inputs' dtype"].calls == 1
    assert ran["relu_backward"][0].reason == "backward: the dtype that forward chose" and all(r.seconds >= 0 for r in e.ran)
    assert "linear" in str(e) and "<table>" in e._repr_html_()


@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss", "mse_loss"])
def test_losses_of_16_bit_logits_are_in_float32(loss):
    """Also where the operator reads the logits in place, without a cast."""
    net, x, y = torch.nn.Linear(64, 10), torch.randn(32, 64), torch.randint(0, 10, (32,))
    with torch.explain() as e, region():
        getattr(torch.nn.functional, loss)(net(x), torch.zeros(32, 10) if loss == "mse_loss" else y)
    (found,) = named(e)[loss]
    assert (found.dtype, found.reason) == ("float32", "autocast: sums, losses and norms in float32")


def test_casts_are_counted_in_bytes():
    x = torch.randn(1000)
    with torch.explain() as e:
        x.to(LOW).float().float()
        x._repr_html_()  # showing a tensor is no operator of the script's
    assert "where" not in named(e) and {(c.source, c.target): (c.calls, c.bytes) for c in e.casts} == {
        ("float32", str(LOW).split(".")[-1]): (1, 6000), (str(LOW).split(".")[-1], "float32"): (1, 6000)}
    assert "cast float32 to" in str(e)


@pytest.mark.skipif(ON_GPU, reason="a GPU's copies are not packed")
def test_kept_copies_are_counted():
    net = torch.nn.Linear(64, 64)
    opt, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(64, 64)

    def step():
        opt.zero_grad()
        with region():
            loss = net(x).sum()
        loss.backward()
        opt.step()
    step()
    with torch.explain() as e:
        step()
        step()
    assert e.copies["used"] >= 2 and e.copies["packed"] == 0 and e.copies["renewed"] >= 2


@pytest.mark.skipif(not UNITS, reason="this CPU has no units for bfloat16")
def test_products_that_could_not_use_the_units():
    def whys(f):
        with torch.explain() as e:
            f()
        return [(p.op, p.shape, p.calls, p.why) for p in e.products]

    a, b, odd = torch.randn(256, 256), torch.randn(256, 256), torch.randn(256, 33)
    with region():
        assert whys(lambda: a @ b) == []
        (few,) = whys(lambda: torch.ones(4, 4) @ torch.ones(4, 4))
        assert few[:3] == ("mm", (4, 4, 4), 1) and "so small" in few[3]
        (empty,) = whys(lambda: a @ odd)
        assert empty[:3] == ("mm", (256, 33, 256), 1) and ("multiples of 8" if ON_GPU else "empty") in empty[3]
        (wide,) = whys(lambda: a.double() @ b.double())
        assert "leaves float64 alone" in wide[3]
    (plain,) = whys(lambda: [a @ b for _ in range(3)])
    assert plain == ("mm", (256, 256, 256), 3, "it ran in float32: no autocast region is open")


def test_watching_ends():
    with torch.explain() as e:
        pass
    torch.ones(2) + 1
    assert e.ran == [] and "casts take 0.0 %" in str(e)


F = torch.nn.functional
CALLS = {
    "cross_entropy": lambda: F.cross_entropy(torch.ones(2, 3, requires_grad=True), torch.tensor([0, 1])),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(*(torch.ones(1, 4, 8, requires_grad=True) for _ in range(3))),
    "interpolate": lambda: F.interpolate(torch.ones(1, 1, 4, requires_grad=True), 8),
    "unfold": lambda: F.unfold(torch.ones(1, 1, 4, 4, requires_grad=True), 2),
    "dropout": lambda: F.dropout(torch.ones(4, requires_grad=True)),
    "linalg.qr": lambda: torch.linalg.qr(torch.eye(2).requires_grad_())[1],
}


@pytest.mark.cpu
@pytest.mark.parametrize("name", CALLS)
def test_reports_have_the_names_that_a_script_calls(name):
    """Whatever the row of the table is called: explain's and the profiler's lines, the graph's nodes, and policies."""
    with torch.profiler.profile() as profile:
        CALLS[name]().sum().backward()
    assert f"aten::{name}" in {e.name for e in profile.events()}
    with torch.explain() as seen:
        y = CALLS[name]()
    assert name in {r.op for r in seen.ran}
    nodes, names = [y.grad_fn], set()
    while nodes:
        node = nodes.pop()
        names.add(node.name())
        nodes += [n for n, _ in node.next_functions if n is not None]
    assert "".join(part.title() for part in name.replace(".", "_").split("_")) + "Backward0" in names
    assert policy.known(name)


def test_a_doctor_says_what_a_script_calls():
    with warnings.catch_warnings(), torch.doctor() as d:
        warnings.simplefilter("ignore")
        F.cross_entropy(torch.ones(2, 3, requires_grad=True) * 3e38 * 3e38, torch.tensor([0, 1]))
    (found,) = d.findings
    assert [op for op, _ in found.chain] == ["cross_entropy"]
