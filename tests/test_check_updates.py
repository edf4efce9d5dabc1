"""ampc check: what reaches an optimizer's update. Scripts that are right and look wrong, and scripts that are wrong."""

import pytest

from ampc.check import check_source

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
"""
START = len(HEAD.splitlines())


def found(text, head=HEAD):
    return [(f.rule, f.line - len(head.splitlines())) for f in check_source(head + text) if f.rule not in ("item-each-step", "scaler-not-saved")]


PLAIN = HEAD.replace('scaler = torch.amp.GradScaler("cuda")\n', "")
MIXED = "with torch.autocast('cuda'):\n{0}    loss = model(x).mean()\n".format
ONCE = "for x in data:\n    optimizer.zero_grad()\n    scaler.scale(model(x).mean()).backward()\n    {}\n    scaler.update()\n"
RIGHT = [
    # a scaler for each training
    "for fold in range(2):\n    net = nn.Linear(2, 2)\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    grad_scaler = torch.amp.GradScaler()\n"
    "    grad_scaler.scale(net(x).mean()).backward()\n    grad_scaler.step(opt)\n    grad_scaler.update()\n",
    "for stage in stages:\n    opt, lr = make(model, stage)\n    grad_scaler = torch.amp.GradScaler()\n    for x in data:\n"
    "        grad_scaler.scale(model(x).mean()).backward()\n        grad_scaler.step(opt)\n        grad_scaler.update()\n",
    "for x in data:\n    if scaler is None:\n        scaler = torch.amp.GradScaler()\n    scaler.scale(model(x).mean()).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
    # gradients that are not scaled, or no longer
    ONCE.format("scaler.step(optimizer)") + "final = torch.optim.Adam(model.parameters())\nfor x in data:\n    model.zero_grad()\n    model(x).mean().backward()\n    final.step()\n",
    ONCE.format("bias.square().backward()\n    plain_optimizer.step()\n    scaler.step(optimizer)"),
    ONCE.format("inverse = 1.0 / scaler.get_scale()\n    for p in model.parameters():\n        if p.grad is not None:\n            p.grad.mul_(inverse)\n    optimizer.step()"),
    ONCE.format("for p in model.parameters():\n        p.grad = p.grad / scaler.get_scale()\n    optimizer.step()"),
    ONCE.format("for p in model.parameters():\n        p.grad /= scaler.get_scale()\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()"),
    ONCE.format("torch._foreach_div_([p.grad for p in model.parameters()], scaler.get_scale())\n    optimizer.step()"),
    ONCE.format("unscale_gradients(optimizer)\n    optimizer.step()"),
    ONCE.format("scaler.step(optimizer) if amp else optimizer.step()"),
    ONCE.format("try:\n        scaler.step(optimizer)\n    except AssertionError:\n        optimizer.step()"),
    # clipping at a limit that is scaled, too
    ONCE.format("nn.utils.clip_grad_norm_(model.parameters(), max_norm=limit * scaler.get_scale())\n    scaler.step(optimizer)"),
    ONCE.format("scale = scaler.get_scale()\n    limit = 0.5 * scale\n    nn.utils.clip_grad_value_(model.parameters(), limit)\n    scaler.step(optimizer)"),
    # a schedule that leaves the first iteration out, or is told which one it is
    "for epoch in range(3):\n    if epoch:\n        scheduler.step()\n    model(x).backward()\n    optimizer.step()\n",
    "for epoch in range(3):\n    scheduler.step(epoch)\n    model(x).backward()\n    optimizer.step()\n",
    "model(x).backward()\noptimizer.step()\nfor epoch in range(3):\n    scheduler.step()\n    model(x).backward()\n    optimizer.step()\n",
    # a model that is made float16 when all is done
    ONCE.format("scaler.step(optimizer)") + "model.half()\ntorch.save(model.state_dict(), 'a.pt')\n",
    "def train():\n    " + ONCE.format("scaler.step(optimizer)").replace("\n", "\n    ") + "\ndef export():\n    model.half()\ntrain()\nexport()\n",
]
WRONG = [
    ("for epoch in range(2):\n    grad_scaler = torch.amp.GradScaler()\n    for x in data:\n        grad_scaler.scale(model(x).mean()).backward()\n"
     "        grad_scaler.step(optimizer)\n        grad_scaler.update()\n", ("scaler-in-loop", 2)),
    ("for x in data:\n    opt = torch.optim.SGD(model.parameters(), lr=0.1)\n    grad_scaler = torch.amp.GradScaler()\n    grad_scaler.scale(model(x).mean()).backward()\n"
     "    grad_scaler.step(opt)\n    grad_scaler.update()\n", ("scaler-in-loop", 3)),
    (ONCE.format("other_optimizer.step()\n    scaler.step(optimizer)"), ("step-on-scaled-gradients", 4)),
    (ONCE.format("x /= 255.0\n    optimizer.step()"), ("step-on-scaled-gradients", 5)),
    (ONCE.format("if x.mean() > 0:\n        optimizer.zero_grad()\n    optimizer.step()"), ("step-on-scaled-gradients", 6)),
    (ONCE.format("nn.utils.clip_grad_norm_(model.parameters(), limit / scaler.get_scale())\n    scaler.step(optimizer)"), ("clip-scaled-gradients", 4)),
    ("for epoch in range(3):\n    if scheduler is not None:\n        scheduler.step()\n    model(x).backward()\n    optimizer.step()\n", ("scheduler-before-optimizer", 3)),
    ("for epoch in range(3):\n    " + ONCE.format("scaler.step(optimizer)").replace("\n", "\n    ") + "model.half()\n", ("half-model-with-scaler", 7)),
    ("model.half()\n" + ONCE.format("scaler.step(optimizer)"), ("half-model-with-scaler", 1)),
]
FLOAT16 = "with {0}torch.autocast('cuda', dtype=torch.float16):\n    out = model(x)\n".format
TRAINED = "loss = out.float().mean()\n{0}\noptimizer.step()\n".format
WITHOUT = [
    FLOAT16("torch.no_grad(), ") + TRAINED("loss.backward()"),
    "@torch.inference_mode()\ndef test(x):\n    " + FLOAT16("").replace("\n", "\n    ") + "\n" + TRAINED("loss.backward()"),
    "def test(x):\n    " + FLOAT16("").replace("\n", "\n    ") + "\nwith torch.no_grad():\n    test(x)\n" + TRAINED("loss.backward()"),
    FLOAT16("") + TRAINED("(loss * 1024).backward()"), FLOAT16("") + TRAINED("scaled = loss * loss_scale\nscaled.backward()"), FLOAT16("") + TRAINED("loss.backward(scale)"),
    FLOAT16("") + TRAINED("with amp.scale_loss(loss, optimizer) as scaled_loss:\n    scaled_loss.backward()"),
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_is_left_alone(text):
    assert found(text) == []


@pytest.mark.parametrize(("text", "rule"), WRONG)
def test_what_is_wrong_is_told(text, rule):
    assert found(text) == [rule]


@pytest.mark.parametrize("text", WITHOUT)
def test_regions_that_need_no_scaler(text):
    assert found(text, PLAIN) == []


@pytest.mark.parametrize("text", [
    FLOAT16("") + TRAINED("loss.backward()"), FLOAT16("") + TRAINED("(loss * 0.5).backward()"),
    "with torch.no_grad():\n    with torch.enable_grad():\n        " + FLOAT16("").replace("\n", "\n        ") + "\n" + TRAINED("loss.backward()")])
def test_regions_that_need_one(text):
    assert [rule for rule, _ in found(text, PLAIN)] == ["fp16-without-scaler"]


EVERY = "for i, (x, y) in enumerate(data):\n    {}\n    loss = {}\n    scaler.scale(loss).backward()\n    if {}:\n        scaler.step(optimizer)\n        scaler.update()\n        {}\n".format
CE, FOURTH = "F.cross_entropy(model(x), y)", "(i + 1) % 4 == 0"
LATE = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
SCALED = "for x in data:\n    optimizer.zero_grad()\n    loss = model(x).mean()\n    {}\n    scaler.step(optimizer)\n    scaler.update()\n".format
CLASS = ("class Trainer:\n    def __init__(self, net):\n        self.scaler = torch.amp.GradScaler('cuda')\n        self.optim = torch.optim.SGD(net.parameters(), lr=0.1)\n"
         "        self.net = net\n    def divide(self):\n        self.scaler.unscale_(self.optim)\n    def fit(self, x, y):\n        {}\n").format
HELPERS = "def unscale(s, opt):\n    s.unscale_(opt)\ndef scaled(z):\n    z = z * 2\n    return scaler.scale(z)\n"
UPDATES = [
    (ONCE.format("scaler.step(optimizer)\n    " + LATE), ("clip-after-step", 5)),
    ("for x in data:\n    model(x).mean().backward()\n    optimizer.step()\n    " + LATE + "\n    optimizer.zero_grad()\n", ("clip-after-step", 4)),
    (EVERY("pass", CE + " / 4", FOURTH, LATE + "; optimizer.zero_grad()"), ("clip-after-step", 8)),
    (ONCE.format("optimizer.step()\n    scaler.step(optimizer)"), ("step-twice", 4)),
    (ONCE.format("if x.mean() > 0:\n        scaler.step(optimizer)\n        optimizer.step()"), ("step-twice", 6)),
    (HELPERS + ONCE.format("unscale(scaler, optimizer)\n    scaler.unscale_(optimizer)\n    scaler.step(optimizer)"), ("unscale-twice", 10)),
    (ONCE.format("scaler.unscale_(optimizer)\n    if clips:\n        scaler.unscale_(optimizer)\n    scaler.step(optimizer)"), ("unscale-twice", 6)),
    (ONCE.format("scaler.step(optimizer)\n    scaler.unscale_(optimizer)"), ("unscale-twice", 5)),
    (ONCE.format("optimizer.zero_grad(set_to_none=True)\n    scaler.step(optimizer)"), ("no-gradients", 4)),
    ("for x in data:\n    loss = model(x).mean()\n    loss.backward()\n    optimizer.zero_grad()\n    optimizer.step()\n", ("no-gradients", 4)),
    (SCALED("scaler.scale(scaler.scale(loss)).backward()"), ("scaled-twice", 4)),
    (SCALED("loss = scaler.scale(loss)\n    total = loss + 1\n    scaler.scale(total).backward()"), ("scaled-twice", 6)),
    (HELPERS + SCALED("loss = scaled(loss)\n    scaler.scale(loss).backward()"), ("scaled-twice", 10)),
    (SCALED("scaler.scale(loss).backward()\n    scheduler.step(scaler.scale(loss).item())"), ("metric-is-scaled", 5)),
    (SCALED("loss = scaler.scale(loss)\n    loss.backward()\n    scheduler.step(metrics=float(loss))"), ("metric-is-scaled", 6)),
    (CLASS("self.scaler.scale(self.net(x)).backward(); self.divide()\n        self.scaler.unscale_(self.optim)\n        self.scaler.step(self.optim); self.scaler.update()"),
     ("unscale-twice", 10)),
    (CLASS("self.scaler.scale(self.net(x)).backward(); self.divide(); self.scaler.step(self.optim); self.scaler.update()")
     .replace("net\n", "net\n        net.fc = nn.Linear(2, 2)\n"), ("wrong-parameters", 4)),
    (CLASS("for i in range(8):\n            F.cross_entropy(self.net(x[i]), y).backward()\n            if (i + 1) % self.n == 0:\n                self.optim.step(); self.optim.zero_grad()"),
     ("loss-not-divided", 10)),
    ("def one(x, opt):\n    own = torch.amp.GradScaler('cuda')\n    own.scale(model(x)).backward()\n    own.step(opt)\n    own.update()\nfor x in data:\n    one(x, optimizer)\n",
     ("scaler-in-loop", 2)),
    ("for epoch in range(3):\n    scheduler.step()\n    for x in data:\n        model(x).backward()\n        optimizer.step()\n", ("scheduler-before-optimizer", 2)),
    (EVERY("optimizer.zero_grad()", CE + " / 4", FOURTH, "pass"), ("accumulation-lost", 2)),
    (EVERY("model.zero_grad(set_to_none=True)", CE + " / 4", "not (i + 1) % n or i == last", "pass"), ("accumulation-lost", 2)),
    (EVERY("pass", CE + " / 4", FOURTH, "pass") + "    optimizer.zero_grad()\n", ("accumulation-lost", 9)),
    (EVERY("pass", CE, FOURTH, "optimizer.zero_grad()"), ("loss-not-divided", 3)),
    ("criterion = nn.CrossEntropyLoss()\n" + EVERY("out = model(x)", "criterion(out, y) + F.mse_loss(out, y)", "(i + 1) % n == 0", "optimizer.zero_grad()"), ("loss-not-divided", 4)),
    ("net = models.resnet18()\nopt = torch.optim.Adam(net.parameters())\nnet.fc = nn.Sequential(nn.Dropout(), nn.Linear(512, 2))\n"
     + ONCE.format("scaler.step(opt)").replace("optimizer", "opt").replace("model", "net"), ("wrong-parameters", 2)),
    ("class Net(nn.Module):\n    pass\ndef main():\n    net = Net()\n    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    net = Net()\n    net(x).backward()\n    opt.step()\n",
     ("wrong-parameters", 5)),
]
LEFT = [
    "def fold(x):\n    own = torch.amp.GradScaler('cuda')\n    opt = torch.optim.SGD(model.parameters(), lr=0.1)\n    own.scale(model(x)).backward()\n    own.step(opt)\n    own.update()\n"
    "for x in data:\n    fold(x)\n",
    "for epoch in range(3):\n    if epoch > 0:\n        scheduler.step()\n    for x in data:\n        model(x).backward()\n        optimizer.step()\n",
    CLASS("self.scaler.scale(self.net(x)).backward(); self.divide(); self.scaler.step(self.optim); self.scaler.update()"),
    ONCE.format("scaler.step(optimizer)\n    norm = nn.utils.clip_grad_norm_(model.parameters(), float('inf'))"),  # only its norm
    "for x in data:\n    scaler.scale(model(x).mean()).backward()\n    scaler.unscale_(first_optimizer)\n    scaler.unscale_(second_optimizer)\n    scaler.step(first_optimizer)\n"
    "    nn.utils.clip_grad_norm_(other, 1.0)\n    scaler.step(second_optimizer)\n    scaler.update()\n",
    "for x in data:\n    if amp:\n        scaler.scale(model(x).mean()).backward()\n        scaler.step(optimizer)\n        scaler.update()\n    if not amp:\n        model(x).mean().backward()\n        optimizer.step()\n",
    HELPERS + ONCE.format("unscale(scaler, other)\n    scaler.unscale_(optimizer)\n    scaler.step(optimizer)"),
    ONCE.format("scaler.unscale_(optimizer)\n    scaler.step(optimizer)") * 2,
    ONCE.format("scaler.unscale_(optimizer) if a else None\n    scaler.step(optimizer)"),
    ONCE.format("if clips:\n        scaler.unscale_(optimizer)\n    elif logs:\n        scaler.unscale_(optimizer)\n    scaler.step(optimizer)"),
    "for x in data:\n    first_loss.backward()\n    second_optimizer.zero_grad()\n    fabric_backward(second_loss)\n    second_optimizer.step()\n",
    "for x in data:\n    loss.backward()\n    optimizer.zero_grad()\n    optimizer.step(closure)\n",
    SCALED("scaled_loss = scaler.scale(loss)\n    scaler.scale(scaled_loss / scaler.get_scale()).backward()"),
    SCALED("if twice:\n        loss = scaler.scale(loss)\n        loss.backward()\n    else:\n        scaler.scale(loss).backward()"),
    SCALED("scaled_loss = scaler.scale(loss)\n    scaled_loss.backward()\n    scheduler.step(scaled_loss.item() / scaler.get_scale())"),
    EVERY("if i % 4 == 0:\n        optimizer.zero_grad()", CE + " / 4", FOURTH, "pass"), EVERY("pass", CE + " / n", FOURTH, "optimizer.zero_grad()"),
    EVERY("pass", CE + "\n    loss = loss / 4", FOURTH, "optimizer.zero_grad()"), EVERY("pass", "F.cross_entropy(model(x), y, reduction='sum')", FOURTH, "optimizer.zero_grad()"),
    EVERY("pass", CE, FOURTH, "optimizer.zero_grad()").replace("if (i", "scheduler.step(i)\n    if (i").replace("optimizer", "adam_optimizer"),
    EVERY("optimizer.zero_grad()", CE, "i % 100 != 0", "pass"), "optimizer = torch.optim.SGD(model.parameters(), lr=0.1 / 4)\n" + EVERY("pass", CE, FOURTH, "optimizer.zero_grad()"),
    "optimizer = torch.optim.Adam(model.parameters(), lr=0.1)\n" + EVERY("pass", CE, FOURTH, "optimizer.zero_grad()"),
    "for i, x in enumerate(data):\n    critic_optimizer.zero_grad()\n    critic(x).mean().backward()\n    critic_optimizer.step()\n    if i % 5 == 0:\n        optimizer.zero_grad()\n"
    "        model(x).mean().backward()\n        optimizer.step()\n",
    "model.head = nn.Identity()\nmodel = torch.compile(model)\n" + ONCE.format("scaler.step(optimizer)"), "model.head = nn.Linear(2, 2)\nevaluate(model)\n",
    "model.head = nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n" + ONCE.format("scaler.step(optimizer)"),
    "model.head = nn.Linear(2, 2)\noptimizer.add_param_group({'params': model.head.parameters()})\n" + ONCE.format("scaler.step(optimizer)"),
    "model.head = nn.Linear(2, 2)\nsecond = torch.optim.SGD(model.head.parameters(), lr=0.1)\n" + ONCE.format("scaler.step(optimizer)\n    scaler.step(second)"),
]


@pytest.mark.parametrize(("text", "rule"), UPDATES)
def test_updates_that_are_wrong(text, rule):
    assert found(text) == [rule]


@pytest.mark.parametrize("text", LEFT)
def test_updates_that_are_right(text):
    assert found(text) == []
