"""Writes the README's table of speeds from the raw rounds in benchmarks/rounds/.

    python tools/speed_table.py            # writes the table
    python tools/speed_table.py --check    # exits with 1 if the table is out of date
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from generated import write_or_check  # noqa: E402
from report import newest_of_each, unit  # noqa: E402

README = ROOT / "README.md"
BEGIN, END = "<!-- speeds: written by tools/speed_table.py -->\n", "<!-- end of speeds -->\n"
THREADS = 2
WORK = {  # a case of benchmarks/cases.py, and its name here
    "import": "`import` in a new process",
    "mlp1024": "MLP 3x1024, float32",
    "mlp1024-bf16": "the same, bfloat16",
    "fp16-1024": "the same, float16 with GradScaler",
    "phase-default": "unscaling, clipping and AdamW, 50 M parameters",
    "convolution": "convolution 3x3, bfloat16",
    "depthwise": "depthwise convolution 3x3, bfloat16",
    "group_norm": "group norm, bfloat16",
    "attention": "attention, 8 heads, 512 x 64, bfloat16",
    "lstm": "LSTM, float32",
    "lstm-bf16": "LSTM, bfloat16",
    "gpt": "GPT, 3 blocks, float32",
    "gpt-bf16": "GPT, 3 blocks, bfloat16",
    "resnet20": "ResNet-20, float32",
    "resnet20-bf16": "ResNet-20, bfloat16",
}


def machines() -> list[dict]:
    """One result for each machine, with every case's rounds from its newest run there; the machine that was used last comes first."""
    files = sorted((ROOT / "benchmarks" / "rounds").glob("*.json"), reverse=True)
    results = [r for r in (json.loads(path.read_text()) for path in files) if r["threads"] == THREADS]
    names = dict.fromkeys(r["machine"] for r in results)
    return [newest_of_each([r for r in results if r["machine"] == name]) for name in names]


def medians(result: dict, case: str) -> tuple[float, float, float] | None:
    """Seconds of ampc and of torch, and the ratio of the two, as medians over the rounds."""
    pairs = result["rounds"].get(case)
    if not pairs:
        return None
    ampc, torch, ratio = zip(*((p["ampc"], p["torch"], p["ampc"] / p["torch"]) for p in pairs))
    return statistics.median(ampc), statistics.median(torch), statistics.median(ratio)


def heading(result: dict) -> str:
    """The machine's short name."""
    name = result["machine"].replace("(R)", "").replace(" Processor", "")
    return name + (", with AMX" if "bf16_gflop_s" in result["limits"] else "")


def bold(ratio: float) -> str:
    """A ratio of times, bold where torch is faster."""
    return f"{ratio:.2f}" if ratio < 1 else f"**{ratio:.2f}**"


def text() -> str:
    """The sentence and the table."""
    columns, rows, ratios = machines(), [], []
    for case, name in WORK.items():
        cells = []
        for result in columns:
            found = medians(result, case)
            cells += [unit(found[0]), unit(found[1]), bold(found[2])] if found else ["", "", ""]
            ratios += [found[2]] if found else []
        rows.append([name, *cells])
    wins = sum(ratio < 1 for ratio in ratios)
    heads = ["work", *(head for result in columns for head in (f"{heading(result)}: ampc", "torch", "ampc / torch"))]
    lines = [f"ampc is faster in {wins} of these {len(ratios)} measurements, and torch in {len(ratios) - wins}.", "",
             "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def main() -> int:
    before, rest = README.read_text().split(BEGIN)
    return write_or_check({README: before + BEGIN + text() + END + rest.split(END)[1]})


if __name__ == "__main__":
    sys.exit(main())
