"""ampc check: what it finds in the rules' pages and in scripts, what it leaves alone, and the command."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_guard import PAGES, blocks, run

from ampc import doctor
from ampc.check import check_source
from ampc.doctor import rules

ELSEWHERE = {"unscale-before-accumulation", "mixed-scales"}  # in another form than their pages': below


def found(text, but=("item-each-step",)):
    return [(f.rule, f.line) for f in check_source(text) if f.rule not in but]


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem in rules.SOURCE and p.stem not in ELSEWHERE], ids=lambda p: p.stem)
def test_a_rules_page_is_true(page):
    wrong, right = blocks(page)
    line = 1 + next(i for i, text in enumerate(wrong.splitlines()) if text.endswith("# reported"))
    if page.stem in rules.RUN and page.stem == "scaler-without-fp16":
        wrong, line = "scaler = torch.amp.GradScaler('cpu')\n" + wrong, 1  # in source, where it is made
    elif page.stem == "fp16-without-scaler":
        line = 2  # the region
    elif page.stem == "update-between-steps":
        line = 8  # the update
    assert found(wrong, ()) == [(page.stem, line)]
    assert found(right, ()) == []


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem not in rules.RUN], ids=lambda p: p.stem)
def test_pages_of_source_rules_run(page, tmp_path):
    wrong, right = blocks(page)
    doctor.ignore("autocast-without-effect", "scaler-without-fp16", "fp16-without-scaler")
    for text in (wrong, right):
        text = text.replace("file)", f"{str(tmp_path / 'a.ampc')!r})")
        if page.stem == "update-missing" and text.startswith(wrong[:20]) and "update" not in text:
            with pytest.raises(RuntimeError, match="already called"):
                run(text, "page.py")
        elif page.stem == "function-without-custom-fwd" and text == wrong:
            with pytest.raises(RuntimeError, match="same dtype"):
                run(text, "page.py")
        elif page.stem in ("unscale-twice", "no-gradients") and text == wrong:
            with pytest.raises((RuntimeError, AssertionError)):
                run(text, "page.py")
        elif page.stem not in ("half-model-with-scaler", "closure-without-scale") or text != wrong:
            run(text, "page.py")
    doctor.guard._State.ignored.clear()


def test_every_source_rule_has_a_page():
    assert {p.stem for p in PAGES} == set(rules.RUN) | set(rules.SOURCE)


LOOP = """
for i, (x, y) in enumerate(batches):
    with autocast:
        loss = criterion(model(x), y) / 4
    scaler.scale(loss).backward()
    {before}
    if (i + 1) % 4 == 0:
        {within}
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    {after}
"""


@pytest.mark.parametrize("parts, rule, line", [
    ({"before": "scaler.unscale_(optimizer)"}, "unscale-before-accumulation", 6), ({"after": "scaler.update()"}, "mixed-scales", 12),
    ({"before": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"}, "clip-scaled-gradients", 6),
    ({"within": "torch.nn.utils.clip_grad_value_(p, 1.0)"}, "clip-scaled-gradients", 8), ({"within": "scaler.unscale_(optimizer)"}, None, 0)])
def test_accumulation(parts, rule, line):
    text = LOOP.format(**{"before": "pass", "within": "pass", "after": "pass", **parts})
    assert found(text) == ([(rule, line)] if rule else [])


REGULAR = """
for i, (x, y) in enumerate(batches):
    optimizer.zero_grad()
    scaler.scale(criterion(model(x), y)).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    if i % 16 == 0:
        optimizer.zero_grad()
        scaler.scale(penalty(model, x)).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def test_a_second_step_at_times_is_no_accumulation():
    """Regularisation every few iterations, beside a step in each."""
    assert found(REGULAR) == []


def test_a_layer_that_is_called_where_it_is_made():
    text = "import torch\nfrom torch import nn\nx = torch.randn(4, 32)\nwith torch.autocast('cpu', dtype=torch.float16):\n" \
           "    s = nn.Linear(32, 4)(x)\ns[s > 0] = -1e9\n"
    assert found(text) == [("mask-beyond-half", 6)]


def test_any_code_is_read_to_its_end():
    """Files of the standard library as if they trained a model, so that every rule looks at them: the checker ends without an exception."""
    for path in sorted(Path(ast.__file__).parent.glob("*.py"))[::10]:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert all(f.line > 0 for f in check_source(f"import torch\nscaler = torch.amp.GradScaler()\n{text}"))


@pytest.mark.parametrize("body", ["self.n = self.n * 2\n        return x * self.n", "self.a = self.b * 2\n        self.b = self.a * 3\n        return x * self.a",
                                  "self.n = self.n + self.n\n        return x.masked_fill(mask, self.n)"])
def test_names_that_stand_for_each_other(body):
    """A value that is made of itself is not known; looking for it ends."""
    assert found(f"import torch\nclass Net:\n    def f(self, x):\n        y = x.half()\n        {body}\n") == []


def test_what_is_nested_too_deeply_is_told(tmp_path):
    (tmp_path / "deep.py").write_text("import torch\nscaler = torch.amp.GradScaler()\nx = {1: " + "+".join(["a"] * 5000) + "}\n")
    done = command(str(tmp_path / "deep.py"))
    assert done.returncode == 2 and "deep.py: an expression is nested more deeply" in done.stderr and "Traceback" not in done.stderr


SWITCH = """
from torch.cuda import amp as cuda_amp
import torch
scaler = torch.amp.GradScaler("cuda", enabled=args.amp) if args.amp else None
for x, y in loader:
    with torch.autocast("cuda", enabled=args.amp):
        loss = model(x, y)
    if scaler is not None:
        scaler.scale(loss).backward()
        if args.clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
    scheduler.step()
"""
CLASS = """
import torch
class Trainer:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")
        self.amp_ctx = torch.autocast("cuda", dtype=torch.float16)
    def step(self, x):
        with self.amp_ctx:
            loss = self.model(x)
        scaled = self.scaler.scale(loss)
        scaled.backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
"""
QUIET = """
import math, torch
import numpy as np
def log(t, eps=1e-20):
    return t.clamp(min=eps).log()
def f(x, kernel, scores):
    a = log(torch.softmax(x, -1))
    b = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    b = b / b.sum(dim=-1, keepdim=True)
    gauss = torch.exp(-0.5 * kernel.pow(2))
    g = gauss / gauss.sum()
    v = ((x * x).mean() - x.mean() ** 2).clamp(0)
    n = np.log(np.exp(kernel).sum()) + math.log(math.exp(2.0))
    m = torch.log(torch.sigmoid(x).clamp(min=1e-6))
    return scores.masked_fill(x > 0, -1e9)
"""


@pytest.mark.parametrize("text", [SWITCH, CLASS, QUIET], ids=["switch", "class", "quiet"])
def test_correct_scripts_are_left_alone(text):
    assert found(text) == []


def test_a_switch_with_a_plain_step_in_the_scaled_arm():
    """What is reported without the `if` is so within it, too."""
    text = SWITCH.replace("scaler.step(optimizer)", "optimizer.step()").replace("scaler.unscale_(optimizer)", "pass")
    assert ("step-on-scaled-gradients", 13) in found(text) and ("step-on-scaled-gradients", 18) not in found(text)


def test_a_picked_softmax_by_hand_is_told_of_once():
    text = """
import torch
def loss(s):
    e = torch.exp(s)
    return -torch.log(e.diagonal() / e.sum(1)).mean()
"""
    assert found(text) == [("log-of-softmax", 5)]


def test_names_that_are_assigned_again():
    """A name on the right is its earlier self."""
    text = """
import torch
def f(x):
    x = x.view(3, 4)
    x = x.exp()
    y = x / x.sum()
    return torch.log(x.squeeze() / x.sum())
"""
    assert found(text) == [("softmax-by-hand", 6), ("log-of-softmax", 7)]


def test_names_are_followed():
    assert found(CLASS.replace("        self.scaler.unscale_(self.optimizer)\n", "")) == [("clip-scaled-gradients", 12)]
    text = CLASS.replace("scaled.backward()", "with self.amp_ctx:\n            scaled.backward()")
    assert found(text) == [("backward-under-autocast", 12)]
    assert found("from torch.cuda.amp import autocast as region\nwith region():\n    pass\n") == [("deprecated-spelling", 2)]
    assert found("import ampc as torch\ns = torch.cuda.amp.GradScaler()\n") == [("deprecated-spelling", 2)]


BCE = """import torch
import torch.nn.functional as F
def loss_of(p, y):
    return F.binary_cross_entropy(p, y)
bce = torch.nn.BCELoss()
region = torch.autocast(DEVICE)
for x, y in batches:
    with REGION:
        CALL
"""


@pytest.mark.parametrize(("region", "call", "lines"), [
    ("torch.autocast('cuda')", "bce(p, y)", [9]), ("torch.autocast(device.type)", "F.binary_cross_entropy(p, y)", [9]), ("region", "torch.nn.BCELoss()(p, y)", [9]),
    ("torch.cuda.amp.autocast()", "loss_of(p, y)", [4]), ("torch.autocast('cuda')", "F.binary_cross_entropy_with_logits(x, y)", []),
    ("torch.autocast('cpu')", "bce(p, y)", []), ("torch.autocast('cuda', enabled=False)", "loss_of(p, y)", []), ("torch.no_grad()", "bce(p, y)", []),
    ("torch.autocast('cuda'), torch.autocast('cuda', enabled=False)", "bce(p, y)", [])])
def test_binary_cross_entropy_in_a_region(region, call, lines):
    """By function and by module, in the region and in a function that is called there; not where a region is of the CPU or off."""
    text = BCE.replace("REGION", region).replace("CALL", call)
    assert [at for rule, at in found(text.replace("DEVICE", "device")) if rule == "bce-under-autocast"] == lines
    if region == "region":
        assert found(text.replace("DEVICE", "'cpu'")) == []


SEED = """
import torch
import torch.nn.functional as F
def loss_of(rows, temperature=0.07):
    rows = F.normalize(rows, dim=-1)
    likeness = rows @ rows.T / temperature
    grown = torch.exp(likeness)
    total = grown.sum(dim=-1, keepdim=True)
    share = grown / total
    return -torch.log(share.diagonal()).mean()
"""


def test_a_contrastive_loss_by_hand():
    assert found(SEED) == [("softmax-by-hand", 9), ("log-of-softmax", 10)]
    mended = SEED[:SEED.index("    grown")] + "    return F.cross_entropy(likeness, torch.arange(len(rows)))\n"
    assert found(mended) == []


def test_comments_silence():
    line = "p = torch.exp(x) / torch.exp(x).sum()"
    assert found(line) == [("softmax-by-hand", 1)]
    for comment, silent in (("# ampc: ignore", True), ("# ampc: ignore[softmax-by-hand]", True), ("#ampc:ignore[log-of-softmax, softmax-by-hand]", True),
                            ("# ampc: ignore[log-of-softmax]", False), ("# ignore", False)):
        assert (found(f"{line}  {comment}") == []) == silent, comment


def command(*args):
    return subprocess.run([sys.executable, "-m", "ampc.cli", "check", *args], capture_output=True, text=True)


def test_the_command(tmp_path):
    (tmp_path / "package").mkdir()
    bad, good, broken = tmp_path / "package" / "bad.py", tmp_path / "good.py", tmp_path / "broken.py"
    bad.write_text("import torch\np = torch.log(torch.softmax(x, 0))\n")
    good.write_text("import torch\n")
    broken.write_text("def f(:\n")
    done = command(str(tmp_path / "package"), str(good))
    assert done.returncode == 1 and done.stdout.startswith(f"{bad}:2: log-of-softmax: ") and "; write log_softmax(x)" in done.stdout
    done = command(str(good))
    assert (done.returncode, done.stdout) == (0, "no findings in 1 file\n")
    (tmp_path / "none").mkdir()
    assert command(str(good), str(good), __file__.replace("test_check", "where")).stdout == "no findings in 2 files\n"
    assert command(str(tmp_path / "none")).stdout == "no findings in 0 files\n"
    assert command("--format", "json", str(good)).stdout == "[]\n" and command("--format", "github", str(good)).stdout == ""
    done = command(str(good), str(broken), str(tmp_path / "absent.py"))
    assert done.returncode == 2 and "broken.py" in done.stderr and "absent.py: No such file or directory\n" in done.stderr and done.stdout == ""
    (entry,) = json.loads(command("--format", "json", str(bad)).stdout)
    assert entry["rule"] == "log-of-softmax" and entry["line"] == 2 and entry["file"] == str(bad) and entry["message"] and entry["fix"]
    assert command("--format", "github", str(bad)).stdout.startswith(f"::warning file={bad},line=2,title=ampc log-of-softmax::")


def test_a_note_about_speed_is_no_error(tmp_path):
    """The usual sum of losses is told, and costs nothing on a CPU: the command ends with 0. A finding beside it ends with 1."""
    path = tmp_path / "train.py"
    path.write_text("import torch\nfor x in batches:\n    loss = model(x)\n    loss.backward()\n    total += loss.item()\n")
    done = command(str(path))
    assert done.returncode == 0 and f"{path}:5: note: item-each-step: loss.item() waits for the device" in done.stdout
    assert command("--format", "github", str(path)).stdout.startswith("::notice file=")
    (entry,) = json.loads(command("--format", "json", str(path)).stdout)
    assert entry["rule"] == "item-each-step"
    path.write_text(path.read_text() + "p = torch.log(torch.softmax(x, 0))\n")
    done = command(str(path))
    assert done.returncode == 1 and "note: item-each-step" in done.stdout and ":6: log-of-softmax" in done.stdout


def test_folders_of_others_are_left_out(tmp_path):
    """A virtual environment in the folder, which nobody means, has thousands of files."""
    bad = "import torch\np = torch.log(torch.softmax(x, 0))\n"
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    for name in (".git", "node_modules", "site-packages", "__pycache__", "env/lib", "own/nested"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "bad.py").write_text(bad)
    lines = command(str(tmp_path)).stdout.splitlines()
    assert len(lines) == 1 and lines[0].startswith(str(tmp_path / "own" / "nested" / "bad.py"))
    assert command(str(tmp_path / "env" / "lib")).stdout  # but where they are named


LEFT = [
    "import numpy as np\ndef f(x): return (x**2).mean() - x.mean()**2\n", "import jax\nfor i in range(3):\n    loss.backward()\n    opt.step()\n    print(loss.item())\n",
    "import torch\nimport numpy as np\ndef f(a):\n    a = np.asarray(a)\n    return (a**2).mean() - a.mean()**2\n",
    "import torch\n@torch.no_grad()\ndef f(x):\n    return torch.sqrt(torch.sum(x**2))\n",
    "import torch\nscaler = torch.amp.GradScaler()\nscores.float().masked_fill(mask, -1e9)\nscores.to(torch.float32).masked_fill(mask, -1e9)\nscaler.update()\n",
    "import torch\ndef train(model):\n    scaler = torch.amp.GradScaler()\n    return scaler\ndef serve(model):\n    model.half()\n",
]
TOLD = [
    ("from engine import *\ndef f(x): return (x**2).mean() - x.mean()**2\n", "variance-by-difference"), ("import numpy as np\nimport torch\ndef f(x): return (x**2).mean() - x.mean()**2\n", "variance-by-difference"),
    ("import torch\ndef build(model):\n    return model.half()\ndef main():\n    model = build(Net())\n    scaler = torch.amp.GradScaler()\n", "half-model-with-scaler"),
    ("import torch\ndef f(x):\n    return torch.sqrt(torch.sum(x**2))\n", "norm-by-hand"), ("import torch\nx.half().masked_fill(mask, -1e9)\n", "mask-beyond-half"),
]


@pytest.mark.parametrize("text", LEFT)
def test_no_false_alarm(text):
    assert found(text, ()) == []


@pytest.mark.parametrize(("text", "rule"), TOLD)
def test_what_looks_like_it_is_still_told(text, rule):
    assert [r for r, _ in found(text)] == [rule]


def branch(test, body="    loss.backward()\n", orelse="    pass\n"):
    head = "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"
    return f"{head}if {test}:\n{body}else:\n{orelse}"


@pytest.mark.parametrize("test", ["rank == 0", "torch.distributed.get_rank() == 0", "not args.local_rank", "rank % 2", "int(os.environ['RANK']) > 0",
                                  "is_main_process()", "use_amp and self.rank != 0", "accelerator.is_main_process", "0 == rank", "rank in (0, 1)"])
def test_a_backward_pass_that_depends_on_the_rank(test):
    assert found(branch(test)) == [("rank-dependent-backward", 5)] and found(branch(test, "    pass\n", "    loss.backward()\n")) == [("rank-dependent-backward", 7)]
    assert found(branch(test, orelse="    (loss + 0 * out.sum()).backward()\n")) == []  # both
    assert found(branch(test, "    print(loss)\n")) == [] and found(branch(test, "    def later(loss):\n        loss.backward()\n")) == []
    assert found(branch(test).replace("from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n", "")) == []  # nothing is averaged


@pytest.mark.parametrize("test", ["rank >= 0", "rank != -1", "args.local_rank == -1", "rank is not None", "world_size > 1", "matrix_rank(x) > 0",
                                  "low_rank == 4", "step % 2 == 0", "rank < 0"])
def test_a_condition_that_is_the_same_in_all_ranks(test):
    assert found(branch(test)) == []


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    (tmp_path / "a.py").write_text("import torch\nx = torch.log(torch.softmax(y, 0))\n")
    got = command(str(tmp_path / "a.py"), str(tmp_path), str(tmp_path / "a.py"))
    assert got.returncode == 1 and got.stdout.count("log-of-softmax") == 1, got.stdout


def test_our_own_code_is_clean_but_for_items():
    root = Path(__file__).resolve().parent.parent
    every = [f for p in [*sorted((root / "ampc").rglob("*.py")), *sorted((root / "benchmarks").glob("*.py"))] for f in check_source(p.read_text(), str(p))]
    assert [f for f in every if f.rule != "item-each-step"] == []


HALF = "import torch\nscaler = torch.amp.GradScaler()\nscaler.update()\nNEG = -1e9\nclass Net:\n    low = -1e20\n    def forward(self, x, m, mask):\n        {}\n"
MASKS = [
    "return x + (1 - m) * -1e9", "return x + -10000.0 * 10.0 * (1.0 - mask)", "return x.masked_fill(m, float('-1e20'))", "return x.masked_fill(m, NEG)",
    "neg = -2**20\n        return x.masked_fill(m, neg)", "x[m] = -1e9", "x[:, ~m] = -1e9", "x[:, 3] = NEG", "return x.masked_fill(m, value=-1e30)",
    "return torch.where(m, x, torch.full_like(x, -1e9))", "low = torch.full_like(x, fill_value=-1e9)\n        return torch.where(m, x, low)",
    "return x + torch.full_like(x, -1e9) * mask", "return torch.where(m, x, -1e9)", "return x.where(m, torch.tensor(-1e9))", "return x.masked_fill(m, torch.tensor(-1e9))",
    "low = torch.tensor(-1e9, device=x.device)\n        return torch.where(m, x, low)", "return x.masked_fill(m, self.low)", "x.fill_diagonal_(-1e9)",
    "return x.masked_fill(m, torch.finfo(torch.float32).min)", "return x.index_fill(1, m, -1e9)", "return mask.to(x.dtype) * -1e9 + x",
    "return torch.where(m, x, x.new_full((), -1e9))", "return (q.float() @ k.T).masked_fill(m, -1e9)", "return x.masked_fill(m, -65505)",
]
HELD = [
    "return x + (1 - m) * -1e4", "return x.masked_fill(m, float('-inf'))", "return x.masked_fill(m, -math.inf)", "return x.masked_fill(m, torch.finfo(x.dtype).min)",
    "neg = torch.finfo(x.dtype).min\n        return x.masked_fill(m, neg)", "x[m] = -1e4", "x[m] = 0", "return x.masked_fill(m, value=-65504)",
    "return torch.where(m, x, torch.full_like(x, -1e4))", "return torch.where(m, x.float(), -1e9)", "return x + (1 - m.float()) * -1e9", "return x + (m == 0) * -1e9",
    "x = x.float()\n        x[m] = -1e9", "best = {}\n        best[m] = -1e9", "for i in range(3):\n            x[i] = -1e9", "x[0] = -1e9", "x['a'] = -1e9",
    "with torch.autocast('cuda', enabled=False):\n            return x.masked_fill(m, -1e9)", "NEG = -1e4\n        return x.masked_fill(m, NEG)",
    "low = torch.tensor([-1e9])\n        return torch.where(m, x, low)", "low = torch.full_like(x, -1e9, dtype=torch.float32)\n        return torch.where(m, x, low)",
    "x = x.to(torch.float32)\n        return (x / 8).masked_fill(m, -1e9)", "return x.masked_fill(m, torch.finfo(torch.float16).min)", "worst = torch.full((3,), -1e9)\n        return worst",
    "return t * -1e9", "best = numpy.zeros(3)\n        best[m] = -1e9", "return x.masked_fill(m, -1e9) if x.dtype == torch.float32 else x",
    "scores = torch.zeros(3, dtype=torch.float32)\n        scores[m] = -1e9", "return x.masked_fill(m, 1e9 - 1e9)",
]


@pytest.mark.parametrize("line", MASKS)
def test_masks_that_float16_cannot_hold(line):
    text = HALF.format(line)
    assert found(text) == [("mask-beyond-half", 7 + len(line.splitlines()))]
    for other in ("", "torch.bfloat16", "torch.autocast('cuda', dtype=torch.bfloat16)", "torch.autocast('cpu')"):  # no float16 anywhere
        assert found(text.replace("torch.amp.GradScaler()", "None").replace("scaler.update()", other)) == [], other
    for half in ("torch.autocast('cuda')", "torch.autocast('cuda', dtype=torch.half)", "y.half()", "y.to('float16')"):
        assert len(found(text.replace("torch.amp.GradScaler()", "None").replace("scaler.update()", half))) == 1, half


@pytest.mark.parametrize("line", HELD)
def test_masks_that_float16_holds(line):
    assert found("import math\nimport numpy\n" + HALF.format(line)) == []


BY_HAND = ["q = out.exp(); q = q / q.sum()", "q = out.exp()\n    q = q / q.sum()", "e = out.exp()\n    s = e.sum()\n    q = e / s", "q = torch.exp(out)\n    q /= q.sum(-1, keepdim=True)",
           "q = out.exp()\n    q = q / (q.sum() + 1e-8)", "q = out.exp()\n    total = torch.sum(q, dim=-1)\n    q = q / total[:, None]", "q = out.exp()\n    q = q.div(q.sum())",
           "q = out.exp()\n    q = torch.div(q, q.sum())", "q = out.exp()\n    q.div_(q.sum())"]
SHIFTED = ["out = out - out.max()\n    q = out.exp(); q = q / q.sum()", "out -= out.amax(-1, keepdim=True)\n    q = out.exp()\n    q /= q.sum()", "m, _ = out.max(-1)\n    q = (out - m).exp()\n    q = q / q.sum()",
           "q = out.sub(out.max()).exp()\n    q = q / q.sum()", "q = out.exp()\n    p = out.cos()\n    q = q / p.sum()", "q = out.exp()\n    q = out.cos()\n    q = q / q.sum()",
           "q = out.abs(); q = q / q.sum()", "out.sub_(out.max())\n    q = out.exp()\n    q = q / q.sum()", "q = out.exp()\n    q = out / q.sum()"]


@pytest.mark.parametrize("body", BY_HAND)
def test_a_softmax_over_several_statements(body):
    text = f"import torch\ndef f(out):\n    {body}\n    return q\n"
    assert found(text) == [("softmax-by-hand", 2 + len(body.splitlines()))]


@pytest.mark.parametrize("body", SHIFTED)
def test_a_softmax_over_several_statements_that_is_right(body):
    assert found(f"import torch\ndef f(out):\n    {body}\n    return q\n") == []


DIFFERENCES = ["eps + (x * x).mean() - x.mean() ** 2", "(x * x).mean() - x.mean() ** 2 + eps", "torch.sqrt(loss + (x ** 2).mean(-1) + eps - x.mean(-1) ** 2)",
               "-x.mean().square() + x.square().mean()", "(x * x).mean() + (eps - x.mean() ** 2)", "loss - (x.mean() ** 2 - (x * x).mean())",
               "(x * x).mean().sub(x.mean() ** 2)", "(x * x).sum() / n - (x.sum() / n) ** 2", "torch.sub(torch.mean(x * x), torch.mean(x) ** 2) + eps", "x.mean() ** 2 - (eps + (x * x).mean())"]
SUMS = ["eps + (x * x).mean() + x.mean() ** 2", "eps + ((x * x).mean() - x.mean() ** 2).clamp(min=0)", "((x * x).mean() + eps - x.mean() ** 2).clamp(min=0)",
        "torch.clamp(eps + (x * x).mean() - x.mean() ** 2, min=0)", "(x * x).mean() + eps - y.mean() ** 2", "(x - x.mean()).square().mean() + eps",
        "x.double().square().mean() + eps - x.double().mean() ** 2", "(x * x).mean() - (eps - x.mean() ** 2)"]


@pytest.mark.parametrize("formula", DIFFERENCES)
def test_a_variance_by_difference_in_a_longer_sum(formula):
    assert found(f"import torch\ndef f(x, y, loss, eps, n):\n    return {formula}\n") == [("variance-by-difference", 3)]


@pytest.mark.parametrize("formula", SUMS)
def test_sums_that_are_no_variance_by_difference(formula):
    assert found(f"import torch\ndef f(x, y, loss, eps, n):\n    return {formula}\n") == []


HELPERS = """
import torch
scaler = torch.amp.GradScaler("cuda")
def backward(loss):
    scaler.scale(loss).backward()
def unscale(s):
    s.unscale_(optimizer)
def clip(params, limit=1.0):
    return torch.nn.utils.clip_grad_norm_(params, limit)
def finish(g):
    g.step(optimizer)
    g.update()
def train():
    for x, y in loader:
        optimizer.zero_grad()
        loss = model(x, y)
        {}
"""
TRAINER = """
import torch
class Trainer:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")
    def backward(self, loss):
        self.scaler.scale(loss).backward()
    def unscale(self):
        self.scaler.unscale_(self.optimizer)
    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
    def train(self, x):
        {}
"""
ORDERS = [
    (HELPERS, "backward(loss); clip(p); finish(scaler)", 9), (HELPERS, "scaler.scale(loss).backward(); clip(p); finish(scaler)", 9),
    (HELPERS, "backward(loss); clip(p); unscale(scaler); finish(scaler)", 9), (HELPERS, "backward(loss); torch.nn.utils.clip_grad_norm_(p, 1.0); finish(scaler)", 17),
    (HELPERS, "backward(loss); unscale(scaler); clip(p); finish(scaler)", 0), (HELPERS, "scaler.scale(loss).backward(); unscale(scaler); torch.nn.utils.clip_grad_norm_(p, 1.0); finish(scaler)", 0),
    (HELPERS, "loss.backward(); clip(p); optimizer.step()", 0), (HELPERS, "backward(loss); finish(scaler); clip(p)", 0),
    (TRAINER, "self.backward(loss); self.clip(); self.step()", 11), (TRAINER, "self.scaler.scale(loss).backward(); self.clip(); self.step()", 11),
    (TRAINER, "self.backward(loss); self.unscale(); self.clip(); self.step()", 0), (TRAINER, "loss.backward(); self.clip()", 0),
    (TRAINER, "self.backward(loss); self.unscale(); torch.nn.utils.clip_grad_value_(p, 1.0); self.step()", 0),
    (TRAINER.replace("self.scaler.unscale_", "if self.clips:\n            self.scaler.unscale_"), "self.backward(loss); self.unscale(); self.clip(); self.step()", 0),
]


@pytest.mark.parametrize(("text", "calls", "line"), ORDERS)
def test_helper_functions_are_followed(text, calls, line):
    assert found(text.format(calls), ("clip-after-step",)) == ([("clip-scaled-gradients", line)] if line else [])


def test_an_instance_and_functions_that_call_themselves():
    text = TRAINER.format("return self.train(x)") + "\ntrainer = Trainer()\nwhile True:\n    trainer.backward(loss)\n    trainer.{}()\n    trainer.clip()\n    trainer.step()\n"
    assert found(text.format("unscale")) == [] and found(text.format("train")) == [("clip-scaled-gradients", 11)]
    assert [f.message for f in check_source(text.format("train"))] == [
        "clip_grad_norm_, called from line 22, comes after scaler.scale(...).backward() without scaler.unscale_() between, so it clips gradients that are "
        "multiplied by the scale"]


def test_a_step_after_a_helper():
    wrong = HELPERS.format("backward(loss); optimizer.step()")
    assert found(wrong) == [("step-on-scaled-gradients", 17)]
    assert found(HELPERS.format("backward(loss); unscale(scaler); optimizer.step()")) == []


FUNCTION = """
import torch
class Product(torch.autograd.Function):
    @staticmethod
    {fwd}
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return {product}
    @staticmethod
    {bwd}
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return {product}, x * g
class Layer(torch.nn.Module):
    def forward(self, x):
        return Product.apply(x, self.w)
def used(x):
    return Product.apply(x, x)
with torch.autocast("cuda", {region}):
    loss = model(x)
{more}
"""


def functions(fwd="", bwd="", product="x @ w", region="dtype=torch.bfloat16", more=""):
    return [r for r in found(FUNCTION.format(fwd=fwd, bwd=bwd, product=product, region=region, more=more)) if r[0] == "function-without-custom-fwd"]


def test_functions_under_autocast():
    assert functions() == [("function-without-custom-fwd", 3)]
    for product in ("x.mm(w)", "torch.matmul(x, w)", "torch.nn.functional.linear(x, w)", "torch.einsum('ij,jk->ik', x, w)", "torch.nn.functional.conv2d(x, w)"):
        assert functions(product=product) == [("function-without-custom-fwd", 3)], product
    assert functions("@torch.amp.custom_fwd(device_type='cuda')") == [("function-without-custom-fwd", 3)]
    assert functions(bwd="@torch.amp.custom_bwd(device_type='cuda')") == [("function-without-custom-fwd", 3)]


def test_functions_that_need_no_decorator():
    both = {"fwd": "@torch.amp.custom_fwd(device_type='cuda')", "bwd": "@torch.amp.custom_bwd(device_type='cuda')"}
    assert functions(**both) == []
    assert functions("@torch.amp.custom_fwd(device_type='cuda', cast_inputs=torch.float32)") == []
    assert functions(product="x.sign() + w") == []  # nothing that autocast would compute in 16 bits
    assert functions(region="enabled=False") == []  # float32 only
    assert functions(product="x.to(w.dtype) @ w") == []  # it sees to the dtypes itself
    text = FUNCTION.format(fwd="", bwd="", product="x @ w", region="dtype=torch.bfloat16", more="")
    alone = text.replace("        return Product.apply(x, self.w)\n", "        return x\n")
    rule = ("function-without-custom-fwd", 3)
    assert rule in found(alone)
    assert rule not in found(alone + "used(x)\n")  # called outside the region alone
    assert rule in found(alone + "with torch.autocast('cuda', dtype=torch.bfloat16):\n    used(x)\n")
    off = "    with torch.autocast('cuda', enabled=False):\n        return Product.apply(x, x)\n"
    assert rule not in found(alone.replace("    return Product.apply(x, x)\n", off))
    assert rule not in found(text.replace("Product.apply", "Other.apply"))  # not used in this file
