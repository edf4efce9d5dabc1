"""Writes the tables of speeds from the raw rounds in benchmarks/rounds/ and rounds-gpu/: the README's, docs/performance.md's and benchmarks/RESULTS*.md.

    python tools/speed_table.py            # writes the tables
    python tools/speed_table.py --check    # exits with 1 if one is out of date
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu  # noqa: E402
import report  # noqa: E402
from cases import BY_NAME, CASES, Case  # noqa: E402
from classes import CLASSES  # noqa: E402
from generated import write_or_check  # noqa: E402

BEGIN, END = "<!-- speeds: written by tools/speed_table.py -->\n", "<!-- end of speeds -->\n"
GPU_BEGIN, GPU_END = "<!-- speeds of a GPU: written by tools/speed_table.py -->\n", "<!-- end of speeds of a GPU -->\n"
WORK = {  # a case of benchmarks/cases.py, and its name in the README
    "import": "`import` in a new process",
    "add16": "`a + b` on 16 numbers",
    "mlp64": "MLP 3x64, float32",
    "mlp64-bf16": "MLP 3x64, bfloat16",
    "mlp1024": "MLP 3x1024, float32",
    "mlp1024-bf16": "MLP 3x1024, bfloat16",
    "fp16-1024": "MLP 3x1024, float16 with GradScaler",
    "phase-default": "unscaling, clipping and AdamW, 50 M parameters",
    "convolution": "convolution 3x3, bfloat16",
    "depthwise": "depthwise convolution 3x3, bfloat16",
    "batch_norm": "batch norm, bfloat16",
    "group_norm": "group norm, bfloat16",
    "attention": "attention, 8 heads, 512 x 64, bfloat16",
    "lstm": "LSTM, float32",
    "lstm-bf16": "LSTM, bfloat16",
    "gpt": "GPT, 3 blocks, float32",
    "gpt-bf16": "GPT, 3 blocks, bfloat16",
    "resnet20": "ResNet-20, float32",
    "resnet20-bf16": "ResNet-20, bfloat16",
    "convnet": "two convolutions with batch norm, float32",
    "convnet-bf16": "two convolutions with batch norm, bfloat16",
}


def ratio(measured: report.Newest, name: str) -> tuple[float, str] | None:
    """ampc's time over torch's and its text, bold where torch is faster; None where there is none."""
    case = BY_NAME[name]
    run = measured.run_of(case)
    ratios = report.ratios_of(run, case) if run else []
    if run is None or not ratios:
        return None
    middle, text = statistics.median(ratios), report.ratio_text(run, case, 2)
    return middle, text if middle < 1 else f"**{text}**"


def where(measured: report.Newest) -> str:
    """The class's name, and the CPU it was measured on."""
    run = measured.runs[0]
    return f"{measured.cpu.title} ({report.cpu_name(run)}{', held to it' if report.held(run) else ''})"


def ratios_text(columns: list[report.Newest]) -> str:
    """The README's sentence and table."""
    found = {name: [ratio(measured, name) for measured in columns] for name in WORK}
    all_found = [cell for cells in found.values() for cell in cells if cell]
    wins = sum(value < 1 for value, _ in all_found)
    heads = ["ampc's time / torch's", *map(where, columns)]
    lines = [f"ampc is faster in {wins} of these {len(all_found)} measurements, and torch in {len(all_found) - wins}.", "",
             "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|",
             *_rows({WORK[name]: [cell and cell[1] for cell in cells] for name, cells in found.items()})]
    return "\n".join([*lines, "", *worth_lines(columns)]) + "\n"


def _rows(cells: dict[str, list[str | None]]) -> list[str]:
    """The lines of a table whose rows have something in them."""
    return [f"| {title} | " + " | ".join(text or "" for text in row) + " |" for title, row in cells.items() if any(row)]


def worth_lines(columns: list[report.Newest]) -> list[str]:
    """What 16 bits are worth on each class: ampc's own times."""

    def cell(measured: report.Newest, case: Case) -> str | None:
        run = measured.run_of(case)
        ratio = report.over_float32(run, case) if run else None
        return None if ratio is None else f"{ratio:.2f}" if ratio < 1 else f"**{ratio:.2f}**"

    pairs = {WORK[name]: [cell(measured, BY_NAME[name]) for measured in columns] for name in WORK if BY_NAME[name].in_float32}
    return ["What 16 bits are worth there is ampc's time in them over its time in float32; bold where float32 is faster.", "",
            "| ampc in 16 bits / in float32 | " + " | ".join(measured.cpu.title for measured in columns) + " |", "|---" * (len(columns) + 1) + "|", *_rows(pairs)]


def gpu_text() -> str:
    """The README's sentence and table of the newest run on a GPU."""
    run = gpu.read_rounds()[0]
    middles = [(case.what, statistics.median(f.ratios)) for case in gpu.CASES if (f := gpu.figures_of(run, case)) and f.ratios]
    wins = sum(middle < 1 for _, middle in middles)
    return "\n".join([f"On an {run['gpu']}, beside torch {run['torch'].split('+')[0]}, ampc is faster in {wins} of {len(middles)} measurements.", "",
                      "| ampc's time / torch's, on the GPU | |", "|---|---|",
                      *(f"| {what} | {f'{middle:.2f}' if middle < 1 else f'**{middle:.2f}**'} |" for what, middle in middles)]) + "\n"


def measured_text(columns: list[report.Newest]) -> str:
    """What was measured on which class, for docs/performance.md."""
    lines = ["| Class | CPU | Newest run | Cases | ampc is faster in | Goals met | At best there |", "|---" * 7 + "|"]
    by_class = {measured.cpu.name: measured for measured in columns}
    return "\n".join([*lines, *(_measured_row(cpu.title, by_class.get(cpu.name)) for cpu in CLASSES.values())]) + "\n"


def _measured_row(title: str, measured: report.Newest | None) -> str:
    if measured is None:
        return f"| {title} | not measured yet | | | | | |"
    run, goals = measured.runs[0], measured.goals()
    ratios = [report.ratios_of(r, case) for case in CASES for r in [measured.run_of(case)] if r]
    faster = sum(statistics.median(r) < 1 for r in ratios if r)
    return (f"| {title} | {report.on_which_cpu(run)} | {run['date'].split()[0]}, commit {report.short_commit(run)} | {len(ratios)} of "
            f"{len(report.cases_of(measured.cpu))} | {faster} | {sum(g.met for g in goals)} of {len(goals)} | {report.best_rates(run, run['limits'])} |")


def replaced(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with another table."""
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def main() -> int:
    results = report.read_rounds()
    columns = report.side_by_side(results)
    readme, performance = ROOT / "README.md", ROOT / "docs" / "performance.md"
    return write_or_check({readme: replaced(replaced(readme.read_text(), ratios_text(columns)), gpu_text(), GPU_BEGIN, GPU_END),
                           performance: replaced(performance.read_text(), measured_text(columns)),
                           ROOT / "benchmarks" / "RESULTS.md": report.results_text(results), gpu.RESULTS: gpu.results_text()})


if __name__ == "__main__":
    sys.exit(main())
