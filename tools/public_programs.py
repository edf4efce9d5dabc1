"""Runs public training programs as they are: `python tools/public_programs.py CLONES [--python PYTHON] [--only NAME] [--library torch]`.

CLONES is a folder with clones of the repositories that `PROGRAMS` names, each under its own name; nothing is fetched here. A program
runs in a copy of its repository, under `ampc run` by PYTHON, an environment that has ampc and the packages that the programs import
(gymnasium, matplotlib, tensorboard, torchvision, ... but no torch). MNIST is ampc's own digits, enlarged, in the files that torchvision
reads. `--library torch` runs the programs by torch instead, to tell a defect from a program that no longer works anywhere."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Tuple

import numpy as np
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/compatibility/public_programs.json"


class Program(NamedTuple):
    name: str
    folder: str  # where it is run: the repository, and what is below
    command: str  # behind `python`; several, one after the other, with `;` between them
    before: Tuple[Callable[[Path], None], ...] = ()  # what writes the data that the program would download
    until: str = ""  # programs that train for hours are stopped when they print this


def digits() -> Tuple[np.ndarray, np.ndarray]:
    """The images as 28 x 28 bytes, and their labels."""
    held = np.load(ROOT / "ampc/data/digits.npz")
    side = np.arange(28) * 8 // 28
    images = held["images"].reshape(-1, 8, 8)[:, side][:, :, side] * (255.0 / 16)
    return images.astype(np.uint8), held["labels"].astype(np.uint8)


def mnist(where: str) -> Callable[[Path], None]:
    """Writes MNIST's four files, with ampc's digits, below the folder that the program gives as root."""
    def write(folder: Path) -> None:
        raw = folder / where / "MNIST/raw"
        raw.mkdir(parents=True, exist_ok=True)
        images, labels = digits()
        for name, part in (("train", slice(0, 1500)), ("t10k", slice(1500, None))):
            x, y = images[part], labels[part]
            (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, len(x), 28, 28) + x.tobytes())
            (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, len(y)) + y.tobytes())
    return write


def text(where: str, words: int = 4000) -> Callable[[Path], None]:
    """Writes a text of some words."""
    def write(folder: Path) -> None:
        some = ["O", "God", "!", "king", "queen", "speaks", "loves", "night", "and", ",", ".", "not", "my", "lord", "shall", "is", "was"]
        drawn = np.random.default_rng(0).choice(some, words)
        path = folder / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(" ".join(drawn[i:i + 12]) for i in range(0, words, 12)) + "\n")
    return write


def pictures(where: str, size: int = 64, count: int = 12) -> Callable[[Path], None]:
    """Writes some pictures, in two folders, as a data set of two classes."""
    def write(folder: Path) -> None:
        from PIL import Image
        rng = np.random.default_rng(0)
        for label in ("one", "two"):
            (folder / where / label).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8)).save(folder / where / label / f"{i}.png")
    return write


def citations(where: str, papers: int = 1600, words: int = 64) -> Callable[[Path], None]:
    """Writes a graph of papers in the files of Cora: words and label of each, and which cites which."""
    def write(folder: Path) -> None:
        rng = np.random.default_rng(0)
        labels, base = rng.integers(0, 7, papers), rng.random((7, words)) < 0.2
        held = base[labels] ^ (rng.random((papers, words)) < 0.05)
        (folder / where).mkdir(parents=True, exist_ok=True)
        (folder / where / "cora.content").write_text("".join(f"{i} {' '.join(map(str, held[i].astype(int)))} topic{labels[i]}\n" for i in range(papers)))
        (folder / where / "cora.cites").write_text("".join(f"{a} {b}\n" for a, b in rng.integers(0, papers, (3 * papers, 2))))
    return write


def _gan(name: str, options: str = "") -> Program:
    return Program(f"GAN: {name}", f"PyTorch-GAN/implementations/{name}", f"{name}.py --n_epochs 1 --n_cpu 1 {options}", (mnist("../../data/mnist"),))


def _tutorial(name: str, folder: str, until: str = "") -> Program:
    return Program(f"tutorial: {name}", f"pytorch-tutorial/tutorials/{folder}/{name}", "main.py", (mnist("../../data"),), until)


def _rl(name: str, options: str = "--total-timesteps 3000") -> Program:
    return Program(f"cleanrl: {name}", "cleanrl", f"cleanrl/{name}.py {options}")


WIKITEXT = tuple(text(f"data/wikitext-2/{part}.txt") for part in ("train", "valid", "test"))
PROGRAMS: List[Program] = [
    Program("MNIST", "examples/mnist", "main.py --epochs 1 --save-model", (mnist("../data"),)),
    Program("MNIST, LSTM", "examples/mnist_rnn", "main.py --epochs 1", (mnist("../data"),)),
    Program("MNIST, forward-forward", "examples/mnist_forward_forward", "main.py --epochs 2 --no_accel --train_size 1000 --test_size 200", (mnist("data"),)),
    Program("MNIST, Hogwild", "examples/mnist_hogwild", "main.py --epochs 1 --dry-run", (mnist("../data"),)),
    Program("Siamese network", "examples/siamese_network", "main.py --epochs 1 --dry-run", (mnist("../data"),)),
    Program("VAE", "examples/vae", "main.py --epochs 1", (mnist("../data"), lambda d: (d / "results").mkdir(exist_ok=True))),
    Program("DCGAN", "examples/dcgan", "main.py --dataset fake --dry-run --batchSize 8"),
    Program("regression", "examples/regression", "main.py"),
    Program("ImageNet, ResNet-18", "examples/imagenet", "main.py --epochs 1 -b 4 -j 0 pictures", (pictures("pictures/train", 256, 6), pictures("pictures/val", 256, 2))),
    Program("REINFORCE", "examples/reinforcement_learning", "reinforce.py --seed 1", until="Episode 30"),
    Program("actor-critic", "examples/reinforcement_learning", "actor_critic.py --seed 1", until="Episode 30"),
    Program("sine waves, LSTM and L-BFGS", "examples/time_sequence_prediction", "generate_sine_wave.py ; train.py --steps 1"),
    Program("word language model, LSTM", "examples/word_language_model", "main.py --epochs 1 --dry-run", WIKITEXT),
    Program("word language model, transformer", "examples/word_language_model", "main.py --epochs 1 --dry-run --model Transformer", WIKITEXT),
    Program("nanoGPT", "nanoGPT", "train.py --dataset=own --device=cpu --compile=False --eval_iters=2 --eval_interval=5 --log_interval=1 --block_size=32 "
            "--batch_size=4 --n_layer=2 --n_head=2 --n_embd=32 --max_iters=10 --lr_decay_iters=10 --gradient_accumulation_steps=2", (lambda d: _tokens(d / "data/own"),)),
    Program("minGPT, adder", "minGPT/projects/adder", "adder.py --trainer.max_iters=600 --trainer.num_workers=0", until="iter 500"),
    Program("minGPT, characters", "minGPT/projects/chargpt", "chargpt.py --trainer.num_workers=0 --model.model_type=gpt-nano --trainer.batch_size=8", (text("input.txt"),), until="iter 20:"),
    Program("makemore, transformer", "makemore", "makemore.py -i names.txt -o out --max-steps 60 --n-layer 2 --n-embd 32 --n-embd2 32 --num-workers 0"),
    Program("makemore, bag of words", "makemore", "makemore.py -i names.txt -o out --type bow --max-steps 60 --num-workers 0"),
    Program("graph attention", "pyGAT", "train.py --epochs 3", (citations("data/cora"),)),
    _tutorial("linear_regression", "01-basics"),
    _tutorial("logistic_regression", "01-basics"),
    _tutorial("feedforward_neural_network", "01-basics"),
    _tutorial("convolutional_neural_network", "02-intermediate"),
    _tutorial("recurrent_neural_network", "02-intermediate"),
    _tutorial("bidirectional_recurrent_neural_network", "02-intermediate"),
    _tutorial("variational_autoencoder", "03-advanced", until=r"Epoch\[3/"),
    *(_gan(n) for n in ("gan", "dcgan", "wgan", "wgan_gp", "wgan_div", "lsgan", "acgan", "cgan", "infogan", "aae", "relativistic_gan",
                        "sgan")),
    _rl("dqn", "--total-timesteps 1500 --learning-starts 500"),
    _rl("c51", "--total-timesteps 1500 --learning-starts 500"),
    _rl("ppo"),
    _rl("ppo_continuous_action", "--total-timesteps 4096 --env-id Pendulum-v1"),
    _rl("rpo_continuous_action", "--total-timesteps 4096 --env-id Pendulum-v1"),
    _rl("ddpg_continuous_action", "--total-timesteps 700 --learning-starts 300 --env-id Pendulum-v1"),
    _rl("td3_continuous_action", "--total-timesteps 700 --learning-starts 300 --env-id Pendulum-v1"),
    _rl("sac_continuous_action", "--total-timesteps 700 --learning-starts 300 --env-id Pendulum-v1"),
    _rl("pqn", "--total-timesteps 3000"),
]


def _tokens(folder: Path) -> None:
    folder.mkdir(parents=True)
    tokens = np.random.default_rng(0).integers(0, 50, 4000, dtype=np.uint16)
    tokens[:3600].tofile(folder / "train.bin")
    tokens[3600:].tofile(folder / "val.bin")


class Result(NamedTuple):
    passed: bool
    seconds: float
    says: str  # its last line, or what stopped it
    output: str


def run(program: Program, clones: Path, python: List[str], limit: float, environment: dict) -> Result:
    """Runs one program in a copy of its repository, and kills it where it takes longer than the limit."""
    repository = program.folder.split("/")[0]
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(clones / repository, Path(scratch) / repository, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        folder = Path(scratch) / program.folder
        for prepare in program.before:
            prepare(folder)
        start, lines = time.monotonic(), []
        for command in program.command.split(" ; "):
            ended = _one(command, folder, lines, program.until, [*python], limit, dict(environment, PYTHONPATH=str(Path(scratch) / repository)))
            if ended != "well":
                break
    said = [line for line in lines if line.strip()]
    says = ended if ended.startswith("longer") or not said else said[-1].strip()[:200]
    return Result(ended == "well", time.monotonic() - start, says, "".join(lines))


def _one(command: str, folder: Path, lines: List[str], until: str, python: List[str], limit: float, environment: dict) -> str:
    """Runs one command and adds what it prints to ``lines``. 'well', or how it ended."""
    late = threading.Event()
    process = subprocess.Popen([*python, *command.split()], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", env=environment, start_new_session=True)

    def stop() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(limit, stop)
    timer.start()
    reached = _read(process, lines, until)
    timer.cancel()
    _kill(process)
    code = process.wait()
    if late.is_set():
        return f"longer than {limit:.0f} s"
    return "well" if (reached if until else code == 0) else f"exit status {code}"


def _read(process: subprocess.Popen, lines: List[str], until: str) -> bool:
    """Collects what a program prints. Whether it has printed what it is stopped at."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if until and re.search(until, line):
            return True
    if not until:
        process.wait()
    return False


def _kill(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, 9)


def commit(folder: Path) -> str:
    found = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def _keep(rows: List[dict]) -> None:
    """Writes these results, and of those that were kept the ones of other programs that are still in the table."""
    found = {r["program"]: r for r in (json.loads(RESULTS.read_text())["programs"] if RESULTS.exists() else [])}
    found.update({r["program"]: r for r in rows})
    kept = {"date": time.strftime("%Y-%m-%d"), "ampc": commit(ROOT), "programs": [found[p.name] for p in PROGRAMS if p.name in found]}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("clones", type=Path, help="the folder that holds the clones")
    parser.add_argument("--python", default=sys.executable, help="of the environment that has the programs' packages (this one)")
    parser.add_argument("--library", choices=("ampc", "torch"), default="ampc", help="what answers `import torch` (ampc)")
    parser.add_argument("--only", action="append", help="programs whose names contain this; may be repeated")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a program may take (300)")
    parser.add_argument("--show", action="store_true", help="print the end of the output of those that fail")
    parser.add_argument("--write", action="store_true", help=f"write the results to {RESULTS.relative_to(ROOT)}; those of other programs stay")
    options = parser.parse_args(arguments)
    chosen = [p for p in PROGRAMS if options.only is None or any(n in p.name for n in options.only)]
    missing = sorted({p.folder.split("/")[0] for p in chosen if not (options.clones / p.folder).is_dir()})
    if missing:
        print(f"left out, because {options.clones} has no clone of them: {', '.join(missing)}")
    python = [options.python, "-m", "ampc", "run"] if options.library == "ampc" else [options.python]
    environment = dict(os.environ, MPLBACKEND="Agg", WANDB_MODE="disabled", SDL_VIDEODRIVER="dummy")
    rows, failed = [], 0
    for p in tqdm([p for p in chosen if p.folder.split("/")[0] not in missing], unit="program"):
        result = run(p, options.clones, python, options.limit, environment)
        failed += not result.passed
        tqdm.write(f"{'passed' if result.passed else 'FAILED'} {result.seconds:6.1f} s  {p.name}: {result.says}")
        if options.show and not result.passed:
            tqdm.write("    " + "\n    ".join(result.output.splitlines()[-15:]))
        repository = p.folder.split("/")[0]
        rows.append({"program": p.name, "repository": repository, "commit": commit(options.clones / repository), "command": p.command,
                     "passed": result.passed, "seconds": round(result.seconds, 1), "says": "" if result.passed else result.says})
    print(f"{len(rows) - failed} of {len(rows)} programs passed")
    if options.write:
        _keep(rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
