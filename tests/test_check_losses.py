"""ampc check: losses that are computed outside the region that has made their input float16, and those that are right."""

import pytest

from ampc.check import check_source

STEP = """
import torch
import torch.nn as nn
import torch.nn.functional as F
{}model = {}
criterion = {}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in batches:
    optimizer.zero_grad()
    with torch.autocast({}):
        output = model(x)
{}
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
NET = "class Net(nn.Module):\n    def forward(self, x):\n        return self.last(x){}\n\n\n"


def found(loss, region='"cuda"', criterion="nn.CrossEntropyLoss()", model="nn.Linear(8, 2)", classes=""):
    text = STEP.format(classes, model, criterion, region, "\n".join("    " + line for line in loss.split("\n")))
    return [f.rule for f in check_source(text)]


@pytest.mark.parametrize("options", [
    {"loss": "loss = criterion(output, y)"}, {"loss": "loss = F.mse_loss(output, y.half())"}, {"loss": "loss = F.cross_entropy(input=output, target=y)"},
    {"loss": "loss = nn.MSELoss()(output, y)"}, {"loss": "loss = criterion(output, y)", "region": '"cpu", dtype=torch.float16'},
    {"loss": "loss = criterion(output, y)", "model": "Net()", "classes": NET.format("")}])
def test_losses_outside_the_region_are_found(options):
    assert found(**options) == ["loss-outside-region"]


@pytest.mark.parametrize("options", [
    {"loss": "    loss = criterion(output, y)"}, {"loss": "loss = criterion(output.float(), y)"}, {"loss": "output = output.float()\nloss = criterion(output, y)"},
    {"loss": "loss = criterion(output, y)", "region": '"cpu"'}, {"loss": "loss = criterion(output, y)", "region": '"cuda", dtype=torch.bfloat16'},
    {"loss": "loss = criterion(output, y)", "region": '"cuda", enabled=False'}, {"loss": "loss = my_loss(output, y)"}, {"loss": "loss = criterion(output, y)", "criterion": "make_loss()"},
    {"loss": "loss = criterion(output, y)", "model": "nn.Sequential(nn.Linear(8, 2), nn.LogSoftmax(-1))", "criterion": "nn.NLLLoss()"},
    {"loss": "loss = criterion(output, y)", "model": "Net()", "classes": NET.format(".float()")},
    {"loss": "with torch.autocast('cuda'):\n    loss = criterion(output, y)"}, {"loss": "loss = criterion(x, y)"}])
def test_losses_in_float32_are_not(options):
    assert "loss-outside-region" not in found(**options)


def test_a_validation_is_not_judged():
    text = STEP.format("", "nn.Linear(8, 2)", "nn.CrossEntropyLoss()", '"cuda"', "        loss = criterion(output, y)")
    text += "with torch.no_grad():\n    with torch.autocast('cuda'):\n        output = model(x)\n    print(criterion(output, y))\n"
    assert [f.rule for f in check_source(text)] == []


def test_a_decorated_function_is_a_region():
    """Its loss is computed within; one after it is not."""
    script = """import torch
import torch.nn.functional as F
model = torch.nn.Linear(4, 4)
scaler = torch.amp.GradScaler()


@torch.autocast("cuda", dtype=torch.float16)
def step(x, y):
    out = model(x)
    return F.mse_loss(out, y)


loss = step(x, y)
scaler.scale(loss).backward()
"""
    assert not [f for f in check_source(script) if f.rule == "loss-outside-region"]
