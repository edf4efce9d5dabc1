"""Autocast's policy as data: operators, modules by name, files, differences, and what regions do with them."""

import pickle
import threading

import pytest
from where import ON_GPU

import ampc as torch
from ampc import policy as P
from ampc.policy import CastPolicy

KIND, LOW = ("cuda", torch.float16) if ON_GPU else ("cpu", torch.bfloat16)


def region(policy=None, **options):
    return torch.autocast(KIND, dtype=LOW, policy=policy, **options)


def test_operators():
    x = torch.randn(4, 4, requires_grad=True)
    careful = CastPolicy("careful", operators={"matmul": "float32", "exp": "keep", "gelu": "float32", "binary_cross_entropy": "float32"})
    half = torch.randn(3).to(LOW)
    with region(careful):
        assert (x @ x).dtype == torch.float32 and torch.nn.functional.linear(x, x).dtype == LOW
        assert half.exp().dtype == LOW and torch.nn.functional.gelu(half).dtype == torch.float32 and half.log().dtype == torch.float32
        loss = torch.nn.functional.binary_cross_entropy(torch.sigmoid(half), torch.ones(3).to(LOW))
        assert loss.dtype == torch.float32
        with region():  # goes on
            assert (x @ x).dtype == torch.float32
        with region(P.default):
            assert (x @ x).dtype == LOW and half.exp().dtype == torch.float32
    with region():
        assert (x @ x).dtype == LOW and half.exp().dtype == torch.float32
    with region(CastPolicy("strict", operators={"exp": "refused", "binary_cross_entropy": "refused", "relu": "widest"})):
        for refused in (half.exp, lambda: torch.nn.functional.binary_cross_entropy(torch.sigmoid(half), torch.ones(3).to(LOW))):
            with pytest.raises(RuntimeError, match="is refused by this region's policy"):
                refused()


def test_gradients_follow_forward():
    x, w = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    results = []
    for policy in (CastPolicy("f", operators={"linear": "float32"}), None):
        with region(policy):
            y = torch.nn.functional.linear(x, w)
        results.append((y, torch.autograd.grad(y.float().sum(), [x, w])))
    exact = x @ w.t()
    assert torch.equal(results[0][0], torch.nn.functional.linear(x, w)) and not torch.equal(results[1][0].float(), exact)
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], torch.autograd.grad(torch.nn.functional.linear(x, w).sum(), [x, w])))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        x = self.body(x)
        self.seen = x.dtype
        return self.head(x)


def test_modules_by_name():
    net, x = Net(), torch.randn(3, 4)
    with region(CastPolicy("head", modules={"head": "float32"})):
        assert net(x).dtype == torch.float32 and net.seen == LOW
        with region(enabled=False):
            assert net(x).dtype == torch.float32 and net.seen == torch.float32
        assert net(x).dtype == torch.float32 and net.seen == LOW
    with region(CastPolicy("body", modules={"*": "float32", "head*": str(LOW).split(".")[-1]})):
        assert net.body(x).dtype == torch.float32 and net.head(x).dtype == LOW
    with region():
        assert net(x).dtype == LOW and net.seen == LOW
    outer = torch.nn.ModuleDict({"inner": net})
    with region(CastPolicy("inner", modules={"inner.body.*": "float32"})):
        assert outer["inner"](x).dtype == LOW and net.seen == torch.float32
    with region(CastPolicy("error", modules={"*head": "float32"})):
        with pytest.raises(RuntimeError):
            net(torch.randn(3, 5))
        assert net(x).dtype == torch.float32 and net.seen == LOW  # nothing is left behind


def test_using_and_threads():
    x, exact = torch.randn(4, 4), CastPolicy("exact", operators={"mm": "float32"})

    def dtype():
        with region():
            return (x @ x).dtype
    elsewhere = []
    with P.using(exact):
        assert dtype() == torch.float32
        with P.using(P.default):
            assert dtype() == LOW
        thread = threading.Thread(target=lambda: elsewhere.append(dtype()))
        thread.start()
        thread.join()
    assert dtype() == LOW and elsewhere == [LOW]


def test_checkpoints_repeat_the_policy():
    x, seen = torch.randn(4, 4, requires_grad=True), []

    def f(x):
        h = x * 2  # kept for the product, and so made again
        y = h @ h
        seen.append(y.dtype)
        return y.sum()
    with region(CastPolicy("exact", operators={"mm": "float32"})), torch.utils.checkpoint.set_checkpoint_early_stop(False):
        y = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    y.backward()
    assert seen == [torch.float32, torch.float32]


def test_files_and_differences(tmp_path):
    a = CastPolicy("a", "2", {"softmax": "keep"}, {"head.*": "float32"})
    a.save(tmp_path / "a.json")
    again = P.load(tmp_path / "a.json")
    assert again == a and (again.name, again.version) == ("a", "2") and again._table == a._table and pickle.loads(pickle.dumps(a)) == a
    b = a.changed("b", operators={"softmax": "float32", "matmul": "float32"}, modules={"tail": "float32"})
    assert {str(d) for d in P.diff(a, b)} == {
        "operator mm: 16-bit -> float32", "operator bmm: 16-bit -> float32", "operator matmul: 16-bit -> float32", "operator mv: 16-bit -> float32",
        "operator softmax: keep -> float32", "module tail: - -> float32"}
    assert P.diff(a, a) == [] and "softmax: keep" in repr(a)
    assert P.default.category("softmax") == "float32" and a.category("softmax") == "keep" and P.default.category("conv2d") == "16-bit"
    with region(str(tmp_path / "a.json")):
        assert torch.softmax(torch.randn(3).to(LOW), 0).dtype == LOW
    (tmp_path / "b.json").write_text('{"operators": {}}')
    with pytest.raises(ValueError, match="a policy has a name"):
        P.load(tmp_path / "b.json")


def entered(table):
    policy = CastPolicy("x")
    policy._table = table
    with region(policy):
        pass


@pytest.mark.parametrize("make, error, says", [
    (lambda: CastPolicy("x", operators={"sofmax": "keep"}), ValueError, "did you mean 'softmax'"),
    (lambda: CastPolicy("x", operators={"softmax": "half"}), ValueError, "expected one of keep, 16-bit"),
    (lambda: CastPolicy("x", operators={"exp": "16-bit"}), ValueError, "only products"),
    (lambda: CastPolicy("x", modules={"head": "int8"}), ValueError, "expected one of float32"),
    (lambda: torch.autocast("cpu", policy=3), TypeError, "must be a CastPolicy or the path"),
    (lambda: entered(b"ab"), TypeError, "one for each operator"),
    (lambda: entered(b"\xff" * len(torch._C.op_table())), ValueError, "no such category")])
def test_bad_policies(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_explain_names_the_policy():
    with torch.explain() as e, region(CastPolicy("x", operators={"relu": "float32"})):
        torch.randn(3).to(LOW).relu()
    assert ("float32", "autocast: float32 by the policy") in {(r.dtype, r.reason) for r in e.ran if r.op == "relu"}


def test_other_names_of_operators():
    one, other = (torch.policy.default.changed("c", operators={name: "float32"}) for name in ("clip", "clamp"))
    assert not torch.policy.diff(one, other) and torch.policy.diff(one, torch.policy.default)
    with pytest.raises(ValueError, match="did you mean 'clamp'"):
        torch.policy.default.changed("c", operators={"clap": "float32"})
