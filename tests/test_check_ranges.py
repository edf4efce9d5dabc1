"""ampc check: formulas whose values are bounded, of which no gradient is taken, or that are computed in a dtype that is wide enough."""

import pytest

from ampc.check import check_source

HEAD = "import torch\nfrom torch.nn import functional as F\nscaler = torch.amp.GradScaler('cuda')\nscaler.update()\n"


def told(body):
    text = HEAD + "def f(x, y, model, temperature):\n    " + body.replace("\n", "\n    ") + "\n"
    return [f.rule for f in check_source(text) if f.rule != "item-each-step"]


SOFTMAX = "s = {}\nreturn torch.exp(s) / torch.exp(s).sum(1, keepdim=True)".format
TOTAL = "s = {}\nreturn torch.log(torch.exp(s).sum(1))".format
ROOT = "{}\nreturn torch.sqrt(({} ** 2).sum(1))".format


@pytest.mark.parametrize("values", [
    "torch.tanh(model(x)).float()", "10 * torch.tanh(x)", "torch.sigmoid(x) * 5 + 1", "x.log_softmax(-1)[:, :3]", "F.cosine_similarity(x, y) / 0.07",
    "F.normalize(x, dim=1)", "x.clamp(-20, 20)", "x.clamp(max=30)", "torch.clamp(x, max=temperature)", "-F.softplus(x)", "x.cos().view(3, 4)", "F.logsigmoid(x)",
    "torch.log(torch.softmax(x, 1).clamp(min=1e-6))", "-(x * x)", "1 - x.square()", "torch.stack([x.tanh(), y.sigmoid()])", "torch.minimum(x, torch.tanh(y))",
    "-x.abs()", "3 - F.relu(x)"])
def test_values_that_cannot_overflow(values):
    assert told(SOFTMAX(values)) == told(TOTAL(values)) == []


@pytest.mark.parametrize("values", ["x.clamp(min=0)", "F.relu(x)", "100 * torch.tanh(x)", "x + 1", "F.cosine_similarity(x, y) / temperature", "x * y.tanh()", "x.tanh() + y",
                                    "torch.stack([x, y.tanh()])", "torch.maximum(x, torch.tanh(y))", "x - x.tanh()", "F.cosine_similarity(x, y) / 0.01"])
def test_values_that_can(values):
    assert told(SOFTMAX(values)) == ["softmax-by-hand"] and told(TOTAL(values)) == ["logsumexp-by-hand"]


def test_values_of_an_earlier_iteration():
    assert told("h = x.tanh()\nfor i in range(3):\n    p = h.exp() / h.exp().sum()\n    h = model(p)\nreturn h") == ["softmax-by-hand"]
    assert told("for i in range(3):\n    h = x.tanh()\n    p = h.exp() / h.exp().sum()\n    h = model(p)\nreturn h") == []


def test_probabilities_that_do_not_round_to_zero():
    assert told("return torch.log(torch.sigmoid(x.tanh() * 3))") == told("return torch.log(torch.softmax(x.tanh(), 1))") == []
    assert told("return torch.log(torch.sigmoid(x.tanh() * 30))") == ["log-of-sigmoid"] and told("return torch.log(torch.softmax(x * 3, 1))") == ["log-of-softmax"]


@pytest.mark.parametrize(("before", "of"), [
    ("v = torch.randn(3, 4)", "v"), ("v = x.detach()", "(v - 1)"), ("v = x.detach() * 2", "v[:, 1:]"), ("v = model.weight.grad", "v"), ("", "(x + 1e-6)"), ("", "(x - y + eps)"),
    ("for v in loader:\n    pass", "v.to(device)"), ("v = torch.load('a.pt')", "v"), ("v = torch.from_numpy(a)", "v")])
def test_norms_without_a_gradient_at_zero(before, of):
    assert told(ROOT(before, of)) == []


@pytest.mark.parametrize(("before", "of"), [
    ("", "x"), ("v = torch.randn(3, 4, requires_grad=True)", "v"), ("v = torch.randn(3, 4).requires_grad_()", "v"), ("v = torch.randn(3)\nv.requires_grad = True", "v"),
    ("v = model(x.detach())", "v"), ("v = x.detach() - y", "v"), ("for v in model.parameters():\n    pass", "v"), ("", "(x + 1.0)"), ("v = x + steps", "v")])
def test_norms_with_one(before, of):
    assert told(ROOT(before, of)) == ["norm-by-hand"]


def test_norms_in_other_spellings():
    assert told("return ((x - y) ** 2).sum(-1) ** 0.5") == told("return (x - y).pow(2).sum(-1).pow(0.5)") == ["norm-by-hand"]
    assert told("d = x - y\nreturn (d * d).sum(-1).sqrt()") == told("return torch.sum(x * x).sqrt()") == ["norm-by-hand"]
    assert told("return (x * y).sum(-1).sqrt()") == []
    assert told("return (((x - y) ** 2).sum(-1) + 1e-12) ** 0.5") == told("return sum(g.pow(2).sum() for g in y).sqrt()") == []
    assert told("with torch.no_grad():\n    return torch.sqrt((x ** 2).sum())") == []
    assert told("torch.set_grad_enabled(False)\nwith torch.no_grad():\n    with torch.enable_grad():\n        return torch.sqrt((x ** 2).sum())") == ["norm-by-hand"]


@pytest.mark.parametrize(("body", "rules"), [
    ("w = x.double()\nreturn (w ** 2).mean(0) - w.mean(0) ** 2", []), ("w = x.to(torch.float64)[1:]\nreturn (w * w).mean() - w.mean().square()", []),
    ("w = torch.zeros(3, dtype=torch.float64)\nreturn (w * w).mean() - w.mean().square()", []), ("w = x.float()\nreturn (w * w).mean() - w.mean() ** 2", ["variance-by-difference"]),
    ("w = x.double().float()\nreturn (w * w).mean() - w.mean() ** 2", ["variance-by-difference"]),
    ("v = (x * x).mean() - x.mean() ** 2\nreturn v.clamp(min=0).sqrt()", []), ("v = (x * x).mean() - x.mean() ** 2\nreturn torch.relu(v)", []),
    ("v = (x * x).mean() - x.mean() ** 2\nreturn v.sqrt()", ["variance-by-difference"])])
def test_variances(body, rules):
    assert told(body) == rules


@pytest.mark.parametrize(("body", "rules"), [
    ("y = torch.randint(0, 3, (4,))\nreturn torch.where(x > 0, y, -1000000)", []), ("return labels.masked_fill(x > 0, -1000000)", []), ("target_ids[x > 0] = -1000000", []),
    ("return x.argmax(1).masked_fill(y, -1000000)", []), ("return y.long().masked_fill(x > 0, -1000000)", []), ("best = x.topk(3).indices\nbest[y] = -1000000", []),
    ("return torch.where(y, x, -1000000)", ["mask-beyond-half"]), ("return model(x).masked_fill(y, -1000000)", ["mask-beyond-half"])])
def test_numbers_for_integers(body, rules):
    assert told(body) == rules
