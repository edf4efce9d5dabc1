"""``ampc run``: scripts for torch as they are, names that are missing, and reading a script without running it."""

import os
import subprocess
import sys

import pytest

import ampc

TRAIN = '''
"""Trains a little network."""
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.optim.lr_scheduler import StepLR
from torch import optim, Tensor as T

def main():
    torch.manual_seed(int(sys.argv[1]))
    x = torch.randn(64, 4)
    data = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=16)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    schedule, scaler = StepLR(optimizer, 5), torch.amp.GradScaler("cpu")
    for epoch in range(20):
        for inputs, targets in data:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        schedule.step()
    assert isinstance(loss, torch.Tensor) and isinstance(loss, T)
    print(__name__, sys.argv[1:], loss.item() < 0.5, sys.modules["__main__"].main is main, __doc__)

if __name__ == "__main__":
    main()
'''


def run(tmp_path, text, *args, before=(), env=None):
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.run([sys.executable, "-m", "ampc", "run", *before, str(script), *args], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **(env or {})})


def test_a_script_runs(tmp_path):
    got = run(tmp_path, TRAIN, "3", "--flag")
    assert got.returncode == 0, got.stderr
    assert got.stdout == "__main__ ['3', '--flag'] True True Trains a little network.\n"


SHOWN = """
import torch
x = torch.ones(2, 3, dtype=torch.bfloat16)
print(str(x.dtype), x.shape, x.layout, torch.channels_last, torch.float8_e4m3fn, x[0], sep="; ")
assert getattr(torch, str(x.dtype).replace("torch.", "")) is torch.bfloat16 and str(torch.int64).startswith("torch.int")
"""


def test_dtypes_and_sizes_are_shown_as_torchs(tmp_path):
    """Libraries read dtypes from their texts. Beside torch, and where ampc is imported by its name, they say whose they are."""
    (tmp_path / "shown.py").write_text(SHOWN)
    got = subprocess.run([sys.executable, "-m", "ampc", "run", "shown.py"], capture_output=True, text=True, cwd=tmp_path)
    assert got.stdout == ("torch.bfloat16; torch.Size([2, 3]); torch.strided; torch.channels_last; torch.float8_e4m3fn; "
                          "tensor([1., 1., 1.], dtype=torch.bfloat16)\n"), got.stderr
    assert str(ampc.float32) == "ampc.float32" and str(ampc.Size([2])) == "ampc.Size([2])"


def test_whoever_looks_for_torch_finds_ampc(tmp_path):
    got = run(tmp_path, """
        import importlib, importlib.metadata, importlib.util, pickle, sys
        assert importlib.util.find_spec("torch") is not None and importlib.metadata.version("torch") == "2.13.0"
        assert importlib.util.find_spec("torch.nothing") is None and importlib.util.find_spec("torch.nn.functional") is not None
        assert importlib.metadata.distribution("torch").metadata["Name"] == "torch"
        import torch, ampc
        import torch.nn.functional as F
        from torch.nn.utils.rnn import pad_sequence
        import torch.backends.cudnn as cudnn
        cudnn.benchmark = True
        assert torch.nn is ampc.nn and F is ampc.nn.functional and torch.Tensor is ampc.Tensor and sys.modules["torch.nn"] is ampc.nn
        assert ampc.nn.__name__ == "ampc.nn" and ampc.nn.__spec__.name == "ampc.nn"
        assert torch.__version__ == "2.13.0" and torch.__version__ > "2.4" and torch.__version__ >= (2, 13) and torch.version.cuda is None and not hasattr(torch, "nothing")
        assert torch.optim.lr_scheduler.StepLR is ampc.optim.lr_scheduler.StepLR and torch.distributions.Normal(0., 1.).sample().shape == ()
        assert type(pickle.loads(pickle.dumps(torch.nn.Linear(2, 2)))) is torch.nn.Linear
        kinds = torch.Tensor, torch.utils.data.DataLoader, torch.utils.data.Dataset  # libraries that do not import torch know these by their module
        assert [k.__module__ for k in kinds] == ["torch", "torch.utils.data.dataloader", "torch.utils.data.dataset"]
        assert all(pickle.loads(pickle.dumps(k)) is k for k in kinds) and torch.utils.data.Subset.__module__ == "ampc.utils.data.dataset"
        dtypes = [d for d in vars(ampc._C).values() if isinstance(d, torch.dtype)]
        assert dtypes and all(pickle.loads(pickle.dumps(d)) is d for d in dtypes) and b"torch" in pickle.dumps(torch.half) and b"ampc" not in pickle.dumps(torch.half)
        assert [str(d) for d in (torch.float32, torch.bool, torch.complex64)] == ["torch.float32", "torch.bool", "torch.complex64"]
        assert repr(torch.ones(1, 2).shape) == "torch.Size([1, 2])" and "dtype=torch.float64" in repr(torch.ones(1, dtype=torch.float64))
        assert str(torch.strided) == "torch.strided" and str(torch.channels_last) == "torch.channels_last"
        with torch.serialization.safe_globals([torch.Tensor]):
            assert torch.Tensor in torch.serialization.get_safe_globals()
        assert not isinstance(torch.ones(1), torch.nn.modules.lazy.LazyModuleMixin)
        try:
            import torch.nothing
        except ImportError:
            print("nothing")
        assert all(n.split(".")[0] != "torch" or "ampc" in repr(m) or n == "torch" for n, m in sys.modules.items())
    """.replace("\n        ", "\n"))
    assert got.returncode == 0, got.stderr
    assert got.stdout == "nothing\n"


FIELDS = """
import dataclasses, typing, torch

@dataclasses.dataclass
class Options:
    lr: float = 0.1
    dtype: torch.dtype = torch.float32

print([f.type if isinstance(f.type, str) else f.type.__name__ for f in dataclasses.fields(Options)], typing.get_type_hints(Options)["lr"])
"""
FLAGS = [("", "['float', 'dtype']"), ("from __future__ import division", "['float', 'dtype']"), ("from __future__ import annotations", "['float', 'torch.dtype']")]


@pytest.mark.parametrize(("flags", "types"), FLAGS)
def test_a_script_is_compiled_with_its_own_flags(tmp_path, flags, types):
    """What ampc's own files import from __future__ does not reach the script: annotations are the types they name."""
    got = run(tmp_path, flags + FIELDS)
    assert got.returncode == 0 and got.stdout == f"{types} <class 'float'>\n", got.stderr


@pytest.mark.parametrize(("flags", "types"), FLAGS)
def test_a_file_that_a_command_loads_knows_its_names(tmp_path, flags, types):
    """`ampc bench` and `ampc replay` import a file. dataclasses and type hints look for its names in sys.modules."""
    file = tmp_path / "made.py"
    file.write_text(flags + FIELDS)
    code = f"import sys\nfrom ampc.run.script import load\nmade = load({str(file)!r}, '_made')\nprint(sys.modules['_made'] is made)"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.returncode == 0 and got.stdout == f"{types} <class 'float'>\nTrue\n", got.stderr


def test_a_file_that_fails_to_load_leaves_nothing_behind(tmp_path):
    file = tmp_path / "made.py"
    file.write_text("raise ValueError('own')")
    code = f"import sys\nfrom ampc.run.script import load\ntry:\n    load({str(file)!r}, '_made')\nexcept ValueError as error:\n    print(error, '_made' in sys.modules)"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.stdout == "own False\n", got.stderr


def test_a_file_that_a_command_loads_does_not_read_the_commands_arguments(tmp_path):
    """argparse at its top level gets its defaults; where it needs an argument, the error says what to do."""
    file = tmp_path / "made.py"
    code = (f"import sys\nfrom ampc.run.script import load\nsys.argv[1:] = ['replay', 'step-1.ampc', '--script', 'made.py']\n"
            f"try:\n    print(load({str(file)!r}, '_made').args.lr)\nexcept ValueError as error:\n    print(error)")
    for needed, text in (("", "0.5\n"), ("parser.add_argument('data')\n", "made.py ends Python when it is imported (exit status 2)")):
        file.write_text(f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', default=0.5)\n{needed}args = parser.parse_args()\n")
        got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert got.returncode == 0 and text in got.stdout and ("__main__" in got.stdout) == bool(needed), got.stderr


def test_einops(tmp_path):
    pytest.importorskip("einops")
    got = run(tmp_path, "import torch\nfrom einops import rearrange, reduce\nfrom einops.layers.torch import Rearrange\n"
              "x = torch.arange(24.0, requires_grad=True).reshape(2, 3, 4)\ny = rearrange(x, 'b c w -> b (c w)')\nprint(type(y) is torch.Tensor, tuple(y.shape), "
              "tuple(reduce(x, 'b c w -> b c', 'mean').shape), tuple(torch.nn.Sequential(Rearrange('b c w -> (b c) w'))(x).shape))\n")
    assert got.returncode == 0, got.stderr
    assert got.stdout == "True (2, 12) (2, 3) (6, 4)\n"


MISSING = [
    ("torch.scatter_reduc", "torch.scatter_reduc is not in ampc; the nearest that is: torch.scatter_reduce"), ("torch.nn.Conv2D(1, 1, 1)", "torch.nn.Conv2d"),
    ("from torch.nn import Conv2D", "script.py:2: torch.nn.Conv2D is not in ampc; the nearest that is: torch.nn.Conv2d"), ("import torch.fftt", "script.py:2: torch.fftt is not in ampc"),
    ("torch.ones(2).new_onez()", "script.py:2: torch.Tensor.new_onez is not in ampc; the nearest that is: torch.Tensor.new_ones"), ("torch.nn.functional.CrossEntropyLoss", "the nearest that is: torch.nn.CrossEntropyLoss"),
]


@pytest.mark.parametrize(("line", "text"), MISSING, ids=[m[0] for m in MISSING])
@pytest.mark.skipif(sys.version_info < (3, 10), reason="exceptions know of the object from 3.10 on")
def test_missing_names(line, text, tmp_path):
    got = run(tmp_path, f"import torch\n{line}\n")
    assert got.returncode == 1 and text in got.stderr
    frames = [row for row in got.stderr.split("\n") if row.startswith('  File "')]
    assert f'File "{tmp_path}/script.py", line 2' in frames[0]  # nothing of ours before the script


@pytest.mark.parametrize("module", ["torch.nn.Linear(2, 2)", "torch.nn.DataParallel(torch.nn.Linear(2, 2))", "torch.nn.ReLU()"])
def test_an_attribute_that_torch_has_no_more_than_ampc(module, tmp_path):
    got = run(tmp_path, f"import torch\n{module}.hidden_units_of_mine\n")
    assert got.returncode == 1 and "has no attribute 'hidden_units_of_mine'" in got.stderr and "is not in ampc" not in got.stderr


def test_scripts_end_as_they_want(tmp_path):
    assert run(tmp_path, "import sys\nsys.exit(3)").returncode == 3
    got = run(tmp_path, "raise ValueError('own')")
    assert got.returncode == 1 and got.stderr.endswith("ValueError: own\n") and "ampc/run" not in got.stderr
    got = run(tmp_path, "def f(:\n")
    assert got.returncode == 1 and "SyntaxError" in got.stderr
    for options in ([], ["--api"]):
        got = subprocess.run([sys.executable, "-m", "ampc", "run", *options, str(tmp_path / "none.py")], capture_output=True, text=True)
        assert got.returncode == 2 and got.stderr == f"ampc run: {tmp_path / 'none.py'}: No such file or directory\n"


def test_on_the_cpu(tmp_path):
    got = run(tmp_path, "import torch\nprint(torch.cuda.is_available(), torch.cuda.device_count())", before=("--device", "cpu"))
    assert got.stdout == "False 0\n", got.stderr


def test_neighbours_are_imported(tmp_path):
    (tmp_path / "model.py").write_text("from torch import nn\nclass Net(nn.Module):\n    pass\n")
    got = run(tmp_path, "from model import Net\nimport torch\nprint(isinstance(Net(), torch.nn.Module))")
    assert got.stdout == "True\n", got.stderr


PATCHED = """import torch
from unittest import mock
first = torch.relu
print("relu" in vars(torch), vars(torch)["relu"] is first)
with mock.patch("torch.relu", lambda x: "patched"):
    print(torch.relu(1), torch.exp is torch.exp)
print(torch.relu is first, torch.nn is vars(torch)["nn"])
torch.own = 3
print(torch.own)
"""


def test_names_are_kept_where_they_were_asked_for(tmp_path):
    """What is assigned to the module stays its own, and ends with it."""
    got = run(tmp_path, PATCHED)
    assert got.stdout.split() == ["True", "True", "patched", "True", "True", "True", "3"], got.stderr


def test_torch_itself_must_not_be_there(torch, tmp_path):
    code = "import torch\nfrom ampc.run import hook\nhook.install()"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "torch itself is imported already" in got.stderr


SCRIPT = """import torch
import torch.nn as nn, numpy as np
from torch.nn import functional as F, Linear as L
import ampc as other
import torch.fftt
x = torch.ones(2).anything_at_all().more
y = torch.complex_exp(x) + F.relu(x) + F.conv9d(x)
class Net(nn.Module):
    layer = nn.Lineer(2, 3)
    def forward(self, x):
        return torch.nn.functional.silu(x, inplace=True) + np.nothing + other.nn.Nothing()
from torch.utils.data import DataLoder
torch.Tensor.no_such_method
"""


def test_reading_a_script(tmp_path):
    got = run(tmp_path, SCRIPT, before=("--api",))
    file = tmp_path / "script.py"
    rows = [row.partition(" (")[0].replace(str(file), "") for row in got.stdout.split("\n")[:-1]]
    assert got.returncode == 1 and rows == [":5: torch.fftt", ":7: torch.complex_exp", ":7: torch.nn.functional.conv9d", ":9: torch.nn.Lineer", ":11: torch.nn.Nothing",
                                            ":12: torch.utils.data.DataLoder", ":13: torch.Tensor.no_such_method"]
    assert "torch.nn.Lineer (nearest: torch.nn.Linear)" in got.stdout and "(nearest: torch.utils.data.DataLoader)" in got.stdout
    got = run(tmp_path, TRAIN, before=("--api",))
    assert got.returncode == 0 and "all of them in ampc" in got.stdout


DISTRIBUTED = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
if dist.is_available():
    dist.init_process_group("gloo")
    dist.split_group(split_ranks=[[0]])
    model = DDP(torch.nn.Linear(2, 2))
torch.jit.save(None, "x")
"""


def test_reading_a_script_of_what_is_refused(tmp_path):
    got = run(tmp_path, DISTRIBUTED, before=("--api",))
    rows = [row.partition(".py")[2] for row in got.stdout.split("\n")[:-1]]
    assert got.returncode == 1 and rows == [":7: torch.distributed.split_group is refused: this part of torch.distributed is not there yet",
                                            ":9: torch.jit.save is refused: there are no TorchScript files here; save a state_dict"]


PACKAGE = {
    "__init__.py": "from .plain import there\nimport sys\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .never import nothing\n",
    "plain.py": "import torch\nfrom torch.nn import Linear, Lineer\nclass there(torch.nn.Module): ...\ndef f(x: torch.Tenser):\n    return torch.reluu(x)\n"
                "try:\n    from torch.gone import x\nexcept ImportError:\n    x = None\nif hasattr(torch, 'npu'):\n    torch.npu.empty_cache()\n",
    "never.py": "import torch.never_read",
    "lazy.py": "import torch\nfrom . import deep\nclass Model(torch.nn.Modul): ...\nif torch.cuda.is_available():\n    from .guarded import y\n",
    "deep.py": "import torch.deeper",
    "guarded.py": "import torch.guarded_away",
    "unreached.py": "import torch.unreached",
}


@pytest.fixture
def package(tmp_path):
    (tmp_path / "parcel").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "parcel" / name).write_text(text)
    (tmp_path / "quiet.py").write_text("import parcel.unreached\nraise SystemError('nothing is executed')\n")
    (tmp_path / "model.py").write_text("import torch\nfrom torch import noone\n")
    return tmp_path


def test_reading_follows_imports(package):
    """Into what the packages load, lazily too; what stands under a condition or in a function is said to be so."""
    got = run(package, "import torch, json, numpy, not_installed\nimport quiet\nfrom parcel import Model\ndef main():\n    import model\n", before=("--api",))
    assert got.returncode == 1, got.stderr
    assert got.stdout.replace(str(package), "").split("\n")[1:-1] == [
        "model: torch.noone is missing on import (/model.py:2)",
        "parcel: torch.Tenser is missing on import (/parcel/plain.py:4)",
        "parcel: torch.deeper is missing on import (/parcel/deep.py:1)",
        "parcel: torch.nn.Lineer is missing on import (/parcel/plain.py:2)",
        "parcel: torch.nn.Modul is missing on import (/parcel/lazy.py:3)",
        "parcel: torch.unreached is missing on import (/parcel/unreached.py:1)",
        "parcel: missing where it is called or under a condition: torch.gone, torch.guarded_away, torch.reluu",
        "quiet: 1 module read, no name of torch is missing",
    ]


def test_reading_what_a_package_uses_in_functions_is_no_failure(package):
    (package / "parcel" / "plain.py").write_text("import torch\nthere = torch.Tensor\ndef f(x):\n    return torch.reluu(x)\n")
    got = run(package, "import parcel\n", before=("--api",))
    assert got.returncode == 0 and got.stdout.split("\n")[1] == "parcel: missing where it is called or under a condition: torch.reluu"
    (package / "parcel" / "plain.py").write_text("import torch\nthere = torch.Tensor\n")
    got = run(package, "import parcel\n", before=("--api",))
    assert got.returncode == 0 and got.stdout.split("\n")[1] == "parcel: 2 modules read, no name of torch is missing"


def test_nearest_names():
    from ampc.run import names

    assert names.has("torch.nn.functional.relu") and names.has("torch.optim.lr_scheduler.StepLR") and not names.has("torch.nn.nothing.more")
    assert names.nearest("torch.nn.MultiHeadAttention") == "torch.nn.MultiheadAttention" and names.nearest("torch.qqqqqq") is None
    assert ampc.nn.__name__ == "ampc.nn"


def test_the_other_commands_end_well(tmp_path):
    """What `make demo` runs, and `ampc info`: they print what they have to say, and succeed."""
    for command, last in ((["demo", "--epochs", "1", "--out", str(tmp_path)], "picture"), (["info"], "self-test")):
        got = subprocess.run([sys.executable, "-m", "ampc", *command], capture_output=True, text=True)
        assert got.returncode == 0, got.stderr
        assert got.stdout.rstrip().split("\n")[-1].startswith(last) and "Run(" not in got.stderr and "Note" not in got.stderr


def command(*args, cwd, **env):
    return subprocess.run([sys.executable, "-m", "ampc", "run", *args], capture_output=True, text=True, cwd=cwd, env={**os.environ, **env})


@pytest.fixture
def installed(tmp_path):
    """A folder with a package that has a program, as pip installs it: metadata, and a script on PATH."""
    site, scripts = tmp_path / "site", tmp_path / "bin"
    (site / "traintool-1.0.dist-info").mkdir(parents=True)
    (site / "traintool-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: traintool\nVersion: 1.0\n")
    (site / "traintool-1.0.dist-info" / "entry_points.txt").write_text("[console_scripts]\ntraintool = traintool.cli:Main.start\n")
    (site / "traintool").mkdir()
    (site / "traintool" / "__init__.py").write_text("")
    (site / "traintool" / "__main__.py").write_text("from .cli import Main\nimport sys\nprint('as a module', __package__, __spec__.name)\nsys.exit(Main.start())\n")
    (site / "traintool" / "cli.py").write_text(
        "import sys, torch, ampc\nclass Main:\n    @staticmethod\n    def start():\n        print(torch.Tensor is ampc.Tensor, sys.argv[0].endswith('traintool'), sys.argv[1:])\n        return 4\n")
    scripts.mkdir()
    for name, first in (("plainscript", "#!/usr/bin/env python3"), ("shellscript", "#!/bin/sh")):
        (scripts / name).write_text(f"{first}\nimport sys, torch, ampc\nprint(__name__, torch.Tensor is ampc.Tensor, sys.argv[1:])\n")
        (scripts / name).chmod(0o755)
    return {"cwd": tmp_path, "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
            "PATH": os.pathsep.join([str(scripts), os.environ["PATH"]])}


def test_a_module_runs_as_by_python_m(installed):
    folder = installed["cwd"]
    (folder / "parcel").mkdir()
    (folder / "parcel" / "__init__.py").write_text("")
    (folder / "parcel" / "near.py").write_text("value = 5\n")
    (folder / "parcel" / "train.py").write_text("import sys, torch, ampc\nfrom .near import value\ndef f(): pass\n"
        "print(__name__, __package__, __spec__.name, value, torch.Tensor is ampc.Tensor, sys.argv[0] == __file__, sys.argv[1:], sys.modules['__main__'].f is f)\n")
    got = command("-m", "parcel.train", "--lr", "3", "-m", **installed)
    assert got.returncode == 0 and got.stdout == "__main__ parcel parcel.train 5 True True ['--lr', '3', '-m'] True\n", got.stderr
    got = command("-m", "traintool", "x", **installed)
    assert got.returncode == 4 and got.stdout.startswith("as a module traintool traintool.__main__\nTrue "), got.stderr


def test_pytest_runs_without_a_warning(installed):
    (installed["cwd"] / "test_it.py").write_text("import torch, ampc\ndef test_it():\n    assert torch.Tensor is ampc.Tensor\n")
    got = command("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_it.py", **installed)
    assert got.returncode == 0 and "1 passed" in got.stdout, got.stdout + got.stderr


def test_a_module_that_cannot_run(installed):
    folder = installed["cwd"]
    (folder / "parcel").mkdir()
    (folder / "parcel" / "__init__.py").write_text("")
    (folder / "parcel" / "fails.py").write_text("import torch\nraise ValueError('own')\n")
    for name, text in (("nothing.at.all", "ampc run: there is no module nothing.at.all"), ("parcel", "ampc run: parcel is a package without a module parcel.__main__"), ("zlib", "ampc run: zlib has no Python code")):
        got = command("-m", name, **installed)
        assert got.returncode == 1 and got.stderr.startswith(text) and "Traceback" not in got.stderr, got.stderr
    got = command("-m", "parcel.fails", **installed)
    assert got.returncode == 1 and got.stderr.endswith("ValueError: own\n") and "ampc/run" not in got.stderr and "runpy" not in got.stderr
    got = command("--api", "-m", "parcel.fails", **installed)
    assert got.returncode == 2 and "--api reads files" in got.stderr


def test_an_installed_program_runs(installed):
    got = command("traintool", "launch", "--x", **installed)
    assert got.returncode == 4 and got.stdout == "True True ['launch', '--x']\n", got.stderr
    if sys.platform != "win32":
        got = command("plainscript", "a", **installed)
        assert got.returncode == 0 and got.stdout == "__main__ True ['a']\n", got.stderr
        got = command("shellscript", **installed)
        assert got.returncode == 2 and "shellscript is no program in Python" in got.stderr
    got = command("nosuchprogram", **installed)
    assert got.returncode == 2 and got.stderr == "ampc run: nosuchprogram: No such file, and no installed program of Python of this name; a module runs with -m\n"


def test_a_file_is_run_before_a_program_of_its_name(installed):
    (installed["cwd"] / "traintool").write_text("print('the file')\n")
    assert command("traintool", **installed).stdout == "the file\n"


def test_a_folder_with_a_main_runs(installed):
    folder = installed["cwd"] / "traintool"
    folder.mkdir()
    assert command("traintool", **installed).returncode == 4  # a folder without __main__.py is none
    (folder / "__main__.py").write_text("import beside\nprint(__name__, beside.x)\n")
    (folder / "beside.py").write_text("x = 3\n")
    got = command("traintool", **installed)
    assert got.stdout == "__main__ 3\n", got.stderr


def test_processes_of_a_script_have_ampc_too(tmp_path):
    """Those that it starts with Python, and those that these start; a sitecustomize that was there before still runs, and programs that are not Python see one more folder on PYTHONPATH."""
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = True\n")
    (tmp_path / "away").mkdir()
    (tmp_path / "child.py").write_text("import sys, subprocess, importlib.metadata\nprint('ampc' in sys.modules, customized, importlib.metadata.version('torch'), flush=True)\nimport torch, ampc\n"
        "print(torch.Tensor is ampc.Tensor, torch.nn is ampc.nn, [p for p in sys.path if '_children' in p], sys.modules['sitecustomize'].__file__.endswith('customize.py'), flush=True)\n"
        "if sys.argv[1:] == ['again']:\n    subprocess.run([sys.executable, __file__], check=True)\n")
    got = run(tmp_path, f"import os, subprocess, sys\nsubprocess.run([sys.executable, {str(tmp_path / 'child.py')!r}, 'again'], check=True, cwd={str(tmp_path / 'away')!r})\n",
              env={"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(tmp_path / "custom")]))})
    assert got.returncode == 0, got.stderr
    assert got.stdout == "False True 2.13.0\nTrue True [] True\n" * 2


def test_processes_without_a_sitecustomize_start_quietly(tmp_path):
    got = run(tmp_path, "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import sys; print(sys.argv)'], check=True)\n")
    assert got.returncode == 0 and got.stdout == "['-c']\n" and not got.stderr


def test_a_process_with_an_environment_of_its_own_is_left_alone(tmp_path):
    got = run(tmp_path, "import os, subprocess, sys\nenv = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}\n"
              "subprocess.run([sys.executable, '-c', 'import sys; print(any(\"ampc\" in type(f).__module__ or \"Late\" in type(f).__name__ for f in sys.meta_path))'], env=env, check=True)\n")
    assert got.stdout == "False\n", got.stderr


def test_importing_a_module_keeps_the_function_of_its_name(tmp_path):
    got = run(tmp_path, """
import torch.nn.utils.weight_norm, torch.multiprocessing.spawn
from torch.nn.utils.spectral_norm import spectral_norm
from torch.autograd.gradcheck import gradcheck
import torch.nn as nn
for f in (nn.utils.weight_norm, nn.utils.spectral_norm, torch.autograd.gradcheck, torch.multiprocessing.spawn):
    print(type(f).__name__)
print(spectral_norm is nn.utils.spectral_norm, gradcheck is torch.autograd.gradcheck)
""")
    assert got.stdout.split("\n")[:-1] == ["function"] * 4 + ["True True"], got.stderr


SPAWNING = """
import torch
import torch.multiprocessing as mp

def work(rank, queue):
    queue.put((rank, torch.ones(2).sum().item(), torch.__version__))

if __name__ == "__main__":
    for method in mp.get_all_start_methods():
        context = mp.get_context(method)
        queue = context.Queue()
        processes = [context.Process(target=work, args=(rank, queue)) for rank in range(2)]
        for process in processes:
            process.start()
        print(method, sorted(queue.get(timeout=60) for _ in processes) == [(rank, 2.0, torch.__version__) for rank in range(2)])
        for process in processes:
            process.join()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="other processes than these")
@pytest.mark.parametrize("before", ["", "import multiprocessing.util\n"])
def test_processes_that_are_started_afresh_have_torch_too(tmp_path, before):
    import multiprocessing
    got = run(tmp_path, before + SPAWNING)
    assert got.returncode == 0, got.stderr
    assert got.stdout.split("\n")[:-1] == [f"{method} True" for method in multiprocessing.get_all_start_methods()]
