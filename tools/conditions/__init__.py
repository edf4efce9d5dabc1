"""What the conditions share: the training that each runs, and ways to start it and to check its output.

Each module of this package registers the conditions of one topic. ``tools/elsewhere.py`` tries them.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / "build" / "elsewhere"  # what later runs use again: virtual environments, a locale, a library

WORK = r"""
import hashlib, io, sys
import ampc
from ampc import nn

def train():
    ampc.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2), nn.GELU(), nn.Flatten(),
                        nn.Linear(24 * 81, 48), nn.LayerNorm(48), nn.Dropout(), nn.Linear(48, 10))
    opt, scaler = ampc.optim.AdamW(net.parameters(), lr=0.01), ampc.amp.GradScaler("cpu")
    for _ in range(3):
        opt.zero_grad()
        with ampc.autocast("cpu", dtype=ampc.float16):
            loss = nn.functional.cross_entropy(net(ampc.randn(16, 3, 20, 20)), ampc.randint(0, 10, (16,)))
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    assert ampc.ones(1 << 21).sum().item() == 1 << 21  # a block that asks for huge pages
    file = io.BytesIO()
    ampc.save(net.state_dict(), file)
    file.seek(0)
    state = ampc.load(file)
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(ampc._C._tensor_bytes(state[name]))
    return digest.hexdigest()
"""
PRINTED = WORK + "print('trained', train(), ampc.tensor([0.5]))\n"
LOADER = WORK + r"""
class Numbers(ampc.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return ampc.full((3,), float(i))
if __name__ == "__main__":
    for start in (None, "fork", "spawn", "forkserver"):
        loader = ampc.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=start)
        assert [b.sum().item() for b in loader] == [18.0, 66.0], start
    print('trained', train(), ampc.tensor([0.5]))
"""


class Skipped(Exception):
    """This machine cannot make the condition."""


class Condition(NamedTuple):
    """One row of the table, and the function that tries it."""

    name: str
    group: str
    text: str
    attempt: Callable[[], Optional[str]]  # returns how ampc behaves; None means SAME


CONDITIONS: List[Condition] = []
SAME = "trains; the same bits"


def condition(group: str, text: str) -> Callable[[Callable[[], Optional[str]]], Callable[[], Optional[str]]]:
    """Registers a function under its own name."""
    def add(f: Callable[[], Optional[str]]) -> Callable[[], Optional[str]]:
        CONDITIONS.append(Condition(f.__name__, group, text, f))
        return f
    return add


def simple(group: str, name: str, text: str, **how: object) -> None:
    """Registers a condition that only changes how the training is started; `how` goes to `python`."""
    CONDITIONS.append(Condition(name, group, text, lambda: trains(python(PRINTED, **how))))  # type: ignore[arg-type]


def run(command: Sequence[str], timeout: int = 300, **options: object) -> subprocess.CompletedProcess:
    """Runs a command without input, and captures its output as text."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, **options)  # type: ignore[call-overload]


def python(code: str, options: Sequence[str] = (), env: Optional[Dict[str, Optional[str]]] = None, shell: str = "exec {}",
           interpreter: str = sys.executable, path: str = str(ROOT), **more: object) -> subprocess.CompletedProcess:
    """Runs `code` in a new Python that imports ampc from `path`.

    `shell` is the shell command that starts it, with {} for Python's own command. A variable of `env` that is None is removed.
    """
    variables = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": None, "PYTHONDONTWRITEBYTECODE": "1", "AMPC_GUARD": "off", **(env or {})}
    line = " ".join(shlex.quote(word) for word in (interpreter, *options, "-c", code))
    return run(["sh", "-c", shell.replace("{}", line)], env={k: v for k, v in variables.items() if v is not None}, **more)


def in_mounts(code: str, lines: str, **how: object) -> subprocess.CompletedProcess:
    """Runs `code` in a new mount namespace, after the shell commands in `lines`."""
    need_root()
    inner = shlex.quote(f'set -e; mount --make-rprivate /; {lines}; exec "$@"')
    return python(code, shell=f"exec unshare -m sh -c {inner} sh {{}}", **how)  # type: ignore[arg-type]


def need_root() -> None:
    if os.geteuid() != 0:
        raise Skipped("needs root")
    if run(["unshare", "-m", "true"]).returncode != 0:
        raise Skipped("this system has no mount namespaces")


def need(*tools: str) -> None:
    for tool in tools:
        if not shutil.which(tool):
            raise Skipped(f"needs {tool}")


def passes(done: subprocess.CompletedProcess) -> str:
    """Returns what the process printed. AssertionError if it failed."""
    assert done.returncode == 0, f"exit status {done.returncode}: {(done.stdout + done.stderr).strip()[-1500:]}"
    return done.stdout


@functools.cache
def plain() -> str:
    """Returns what the training prints without any condition."""
    return passes(python(PRINTED))


def trains(done: subprocess.CompletedProcess) -> None:
    """Checks that the process printed exactly what the plain run printed."""
    out = passes(done)
    assert out == plain(), f"expected {plain()!r}, got {out!r}"
    assert "Traceback" not in done.stderr, done.stderr[-1500:]


def refuses(done: subprocess.CompletedProcess, *words: str) -> str:
    """Checks that the process ended with an exception that mentions `words`, and returns its last line."""
    assert done.returncode == 1, f"exit status {done.returncode}: {done.stdout}{done.stderr[-1500:]}"
    last = done.stderr.strip().splitlines()[-1]
    assert all(word in last for word in words), done.stderr[-1500:]
    return f"refused: `{last}`"


def as_script(code: str, folder: str) -> str:
    """Writes `code` to a file, which spawned processes can import. Returns code that runs the file."""
    path = Path(folder) / "script.py"
    path.write_text(code)
    path.chmod(0o644)
    return f"import runpy, sys; sys.argv[:] = [{str(path)!r}]; runpy.run_path({str(path)!r}, run_name='__main__')"
