"""What a type checker finds in a user's script: mypy --strict knows the types of calls, and finds nothing wrong."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ampc

SCRIPT = '''
import ampc

class Net(ampc.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = ampc.nn.Linear(2, 2)

    def forward(self, x: ampc.Tensor, twice: bool = False) -> tuple[ampc.Tensor, int]:
        return self.layer(x), 2 if twice else 1

@ampc.autocast("cpu")
def double(x: ampc.Tensor) -> ampc.Tensor:
    return x * 2

@ampc.no_grad()
def count(x: ampc.Tensor) -> int:
    return x.numel()

net, x, criterion = Net(), ampc.ones(3, 2), ampc.nn.MSELoss()
opt, scaler = ampc.optim.SGD(net.parameters(), lr=0.1), ampc.GradScaler("cpu")
with ampc.autocast("cpu", dtype=ampc.float16) as region:
    loss = criterion(net(x)[0], x)
scaler.scale(loss).backward()
scaler.step(opt)
advice = ampc.doctor.advise(net, (x, x), criterion, opt)
ampc.backends.mkldnn.enabled = False
if ampc.enable_autocast:
    ampc.enable_autocast = False

reveal_type(ampc.nn.Linear(2, 2)(x))  # ampc._C.Tensor
reveal_type(net(x, twice=True))  # tuple[ampc._C.Tensor, int]
reveal_type(criterion(x, x))  # ampc._C.Tensor
reveal_type(ampc.nn.LSTMCell(2, 2)(x))  # tuple[ampc._C.Tensor, ampc._C.Tensor]
reveal_type(x @ x.t() + 1)  # ampc._C.Tensor
reveal_type(ampc.relu(x))  # ampc._C.Tensor
reveal_type(ampc.inverse(x))  # ampc._C.Tensor
reveal_type(double(x))  # ampc._C.Tensor
reveal_type(count(x))  # int
reveal_type(region)  # ampc.amp.autocast_mode.autocast
reveal_type(scaler.scale(loss))  # ampc._C.Tensor
reveal_type(scaler.scale([loss, loss]))  # list[ampc._C.Tensor]
reveal_type(scaler.get_scale())  # float
reveal_type(scaler.report())  # ampc._events.StepReport
reveal_type(scaler.ledger.report(scaler))  # ampc._events.StepReport
reveal_type(advice)  # ampc.doctor.precision_advisor.Advice
reveal_type(advice.precision)  # str
reveal_type(ampc.doctor.advise(net, (x, x), criterion, opt, steps=2))  # ampc.doctor.precision_advisor.Advice
reveal_type(ampc.doctor.reports()[0])  # tuple[str, str, int, str, str, fallback=ampc.doctor.guard.Report]
with ampc.doctor(stop=True) as found, ampc.explain() as explained:
    reveal_type(found.findings)  # list[ampc.doctor._finding.Finding]
    reveal_type(explained)  # ampc.doctor.explain.Explain
reveal_type(ampc.finfo(ampc.float16).max)  # float
reveal_type(ampc.testing.assert_close(x, x))  # None

def told(advice: ampc.doctor.Advice, found: ampc.doctor.Doctor, policy: ampc.Policy) -> str:
    return advice.verdict

net(x, once=True)  # error: Unexpected keyword argument "once"
ampc.doctor.advise(net)  # error: Too few arguments
'''


def test_a_script_has_types(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT)
    home = Path(ampc.__file__).parent.parent
    env = {**os.environ, **({} if home.name in ("site-packages", "dist-packages") else {"MYPYPATH": str(home)})}
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\nfollow_imports = silent\nignore_missing_imports = True\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "script.py"], cwd=tmp_path, env=env,
                          capture_output=True, text=True, timeout=300)
    said = {}
    for line, text in re.findall(r"^script\.py:(\d+): (.*?)(?:  \[[\w-]+\])?$", done.stdout, re.M):
        said.setdefault(int(line), []).append(re.sub(r'^note: Revealed type is "(.*)"$', r"\1", text))
    wanted = {i: line.split("  # ")[1] for i, line in enumerate(SCRIPT.split("\n"), 1) if "  # " in line}
    assert len(wanted) > 20 and set(said) == set(wanted), done.stdout + done.stderr
    for i, text in wanted.items():
        here = [t for t in said[i] if not t.startswith("note: ")]
        assert len(here) == 1 and (here[0].startswith(text) if text.startswith("error") else here[0] == text), (i, text, said[i])
