"""Tables and the picture, from raw rounds."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Optional

from cases import BF16, BUSY, BY_NAME, CASES, F32, GROUPS, MORE, Case
from classes import CLASSES, CpuClass, class_of, own_class_of

HERE = Path(__file__).resolve().parent
PICTURE = "![The time of ampc divided by torch's, for each kind of work and each class of CPUs](../docs/results.png)"
THREADS = 2  # of the runs that classes are compared by
NO_SLOWER = 1.05  # of float32's time, for 16 bits on CPUs that have no units for them
TWICE = 1.8  # as fast on two threads as on one, where the machine gives that

# -- what rounds say ------------------------------------------------------------------------------------


def read_rounds() -> list[dict]:
    """Every kept run, the newest first."""
    return [json.loads(path.read_text()) for path in sorted((HERE / "rounds").glob("*.json"), reverse=True)]


def cases_of(cpu: CpuClass) -> list[Case]:
    """What a class is measured by."""
    return [case for case in CASES if cpu.units or not case.needs_units]


def seconds_of(result: dict, name: Optional[str], library: str) -> list[float]:
    """Of a call, in each round."""
    return [p[library] for p in result["rounds"].get(name, []) if p[library] is not None]


def median_of(result: dict, name: Optional[str], library: str) -> float:
    """Seconds of a call; nan where there are none."""
    return statistics.median(seconds_of(result, name, library) or [math.nan])


def ratios_of(result: dict, case: Case) -> list[float]:
    """Of ampc's time to torch's, in order; none where one of them raised an error."""
    return sorted(a / b for a, b in zip(seconds_of(result, case.name, "ampc"), seconds_of(result, case.name, "torch")))


def was_stopped(result: dict, case: Case) -> bool:
    """Whether torch took so long that it was stopped: its time is then a lower bound, and the ratio an upper one."""
    return any(p.get("stopped") == "torch" for p in result["rounds"].get(case.name, []))


def limit_of(result: dict, case: Case) -> Optional[float]:
    """What the machine gave at best of what a case needs, on as many threads, in the same run."""
    key = F32 if case.limit == BF16 and not class_of(result).units else case.limit
    threads = case.threads or result["threads"]
    limits = result["limits"] if threads == result["threads"] else result.get("limits_of_one", {}) if threads == 1 else {}
    return limits.get(key)


def share_of(result: dict, case: Case) -> Optional[float]:
    limit, seconds = limit_of(result, case), median_of(result, case.name, "ampc")
    return case.amount / seconds / 1e9 / limit if limit and seconds == seconds else None


# -- goals ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    text: str
    met: bool

    def __str__(self) -> str:
        return self.text if self.met else f"{self.text} - **missed**"


def goals(result: dict, case: Case) -> list[Goal]:
    """What ampc was to reach in a case, as far as this run can tell."""
    return [*_ratio_goal(result, case), *_float32_goal(result, case), *_share_goal(result, case), *_threads_goal(result, case)]


def _without_units(result: dict, case: Case) -> bool:
    """Whether it is measured against float32, because 16 bits have no units in this class."""
    return case.in_float32 is not None and class_of(result).units is None


def _ratio_goal(result: dict, case: Case) -> Iterator[Goal]:
    if case.bound is not None and not _without_units(result, case) and ratios_of(result, case):
        yield Goal(f"at most {case.bound:g}", statistics.median(ratios_of(result, case)) <= case.bound)


def over_float32(result: dict, case: Case) -> Optional[float]:
    """The time of a step in 16 bits over that of the same step in float32, both ampc's; None where one was not measured."""
    ratio = median_of(result, case.name, "ampc") / median_of(result, case.in_float32, "ampc")
    return ratio if ratio == ratio else None


def _float32_goal(result: dict, case: Case) -> Iterator[Goal]:
    if _without_units(result, case):
        ratio = over_float32(result, case)
        if ratio is not None:
            yield Goal(f"at most {NO_SLOWER} of float32's time: {ratio:.2f}", ratio <= NO_SLOWER)


def _share_goal(result: dict, case: Case) -> Iterator[Goal]:
    share = share_of(result, case)
    if case.share is not None and share is not None:
        yield Goal(f"at least {100 * case.share:.0f} % of the limit", share >= case.share)


def _threads_goal(result: dict, case: Case) -> Iterator[Goal]:
    """Of a case that has a twin on one thread."""
    if case.on_one is None or result["threads"] != case.threads:
        return
    on_one = BY_NAME[case.on_one]
    limit, limit_of_one = limit_of(result, case), limit_of(result, on_one)
    faster = median_of(result, on_one.name, "ampc") / median_of(result, case.name, "ampc")
    if limit and limit_of_one and limit / limit_of_one >= TWICE and faster == faster:
        yield Goal(f"at least {TWICE} times as fast as on one thread: {faster:.2f}", faster >= TWICE)


# -- tables ---------------------------------------------------------------------------------------------


def unit(seconds: float) -> str:
    for scale, name in ((1, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {name}"
    return f"{seconds:.3g} s"


def of_limit(result: dict, case: Case) -> str:
    """The rate, and its share of what the machine gave at best in the same run."""
    limit, share = limit_of(result, case), share_of(result, case)
    if limit is None or share is None:
        return ""
    return f"{share * limit:.3g} of {limit:.4g} {'GB/s' if case.limit and case.limit.endswith('gb_s') else 'GFLOP/s'}, {100 * share:.0f} %"


def table(result: dict) -> str:
    lines = ["| work | ampc | torch | ampc / torch | lowest to highest round | goals | ampc's rate |", "|---|---|---|---|---|---|---|"]
    for case in [*CASES, *MORE]:
        if result["rounds"].get(case.name):
            ratios = ratios_of(result, case)
            lines.append(f"| {case.what} | {time_text(result, case, 'ampc')} | {time_text(result, case, 'torch')} | {ratio_text(result, case, 3)} | "
                         f"{f'{ratios[0]:.3f} to {ratios[-1]:.3f}' if ratios else ''} | "
                         f"{'; '.join(map(str, goals(result, case)))} | {of_limit(result, case)} |")
    return "\n".join(lines)


def time_text(result: dict, case: Case, library: str) -> str:
    """The median, a lower bound of it, or that there was an error."""
    first = result["rounds"][case.name][0]
    if first[library] is None:
        return "an error"
    return ("over " if first.get("stopped") == library else "") + unit(median_of(result, case.name, library))


def ratio_text(result: dict, case: Case, digits: int) -> str:
    """The median, or an upper bound of it; empty where there is none."""
    ratios = ratios_of(result, case)
    return f"{'under ' if was_stopped(result, case) else ''}{statistics.median(ratios):.{digits}f}" if ratios else ""


def busy_table(result: dict) -> str:
    """Times beside busy processes over quiet times, each library against itself."""
    lines = ["| step | busy processes | ampc, busy / quiet | torch, busy / quiet | goal for ampc |", "|---|---|---|---|---|"]
    for name, bound in BUSY.items():
        for row in result.get("busy", {}).get(name, []):
            ratio = {k: statistics.median(row[k]["busy"]) / statistics.median(row[k]["quiet"]) for k in ("ampc", "torch")}
            goal = Goal(f"at most {bound}", ratio["ampc"] <= bound)
            lines.append(f"| {BY_NAME[name].what} | {row['processes']} | {ratio['ampc']:.2f} | {ratio['torch']:.2f} | {goal} |")
    return "\n".join(lines)


def cpu_name(result: dict) -> str:
    return str(result["machine"]).replace("(R)", "").replace(" Processor", "")


def held(result: dict) -> bool:
    """Whether the CPU has more than the class that it was measured in."""
    return own_class_of(result) is not class_of(result)


def on_which_cpu(result: dict) -> str:
    """The machine, and whether its CPU has more than the class."""
    cpu, own = class_of(result).title, own_class_of(result).title
    return f"{cpu_name(result)}, which has {own} and was held to {cpu}" if held(result) else f"{cpu_name(result)}, which has no more than {cpu}"


def short_commit(result: dict) -> str:
    return result["commit"][:12] + ("+changes" if result["commit"].endswith("+changes") else "")


def best_rates(result: dict, limits: dict) -> str:
    names = {"copy_gb_s": "copy {:.1f} GB/s", "add_gb_s": "read-modify-write {:.1f} GB/s", "f32_gflop_s": "float32 FMA {:.0f} GFLOP/s",
             "bf16_gflop_s": f"bfloat16 {class_of(result).units} {{:.0f}} GFLOP/s",
             "sgemm_1024_gflop_s": "NumPy's float32 product of 1024 {:.0f} GFLOP/s"}
    return ", ".join(names[k].format(v) for k, v in limits.items() if k in names)


def heading(r: dict) -> list[str]:
    words = ", ".join(f"{name} {text}" for name, text in r.get("held", {}).items())
    said = f" The libraries say of themselves: {words}." if words else ""
    one = f" On one thread: {best_rates(r, r['limits_of_one'])}." if r.get("limits_of_one") else ""
    return [f"### {r['date']} UTC, commit {short_commit(r)}", "",
            f"{on_which_cpu(r)}; {r['threads']} threads; torch {r['torch']}; {r['blas']}; load average {r['load_before']:.2f} before, "
            f"{r['load_after']:.2f} after.{said} At best in the same run: {best_rates(r, r['limits'])}.{one}", ""]


# -- classes side by side -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Newest:
    """The runs of a class on the machine where it was measured last, the newest first."""

    cpu: CpuClass
    runs: list[dict]

    def run_of(self, case: Case) -> Optional[dict]:
        """The newest run that has a case."""
        return next((r for r in self.runs if r["rounds"].get(case.name)), None)

    def goals(self) -> list[Goal]:
        return [goal for case in CASES for run in [self.run_of(case)] if run for goal in goals(run, case)]


def side_by_side(results: list[dict]) -> list[Newest]:
    """Those classes that were measured, from the lowest on."""
    found = []
    for cpu in CLASSES.values():
        runs = [r for r in results if class_of(r) is cpu and r["threads"] == THREADS]
        found += [Newest(cpu, [r for r in runs if (r["machine"], r["torch"]) == (runs[0]["machine"], runs[0]["torch"])])] if runs else []
    return found


def ratio_table(classes: list[Newest]) -> str:
    """ampc's time over torch's; bold where a goal is missed."""
    lines = ["| work | " + " | ".join(c.cpu.title for c in classes) + " |", "|---" * (len(classes) + 1) + "|"]
    for case in CASES:
        cells = [_cell(c, case) for c in classes]
        if any(cells):
            lines.append(f"| {case.what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(measured: Newest, case: Case) -> str:
    run = measured.run_of(case)
    if run is None:
        return ""
    ratio = ratio_text(run, case, 2) or "torch: an error"
    return ratio if all(goal.met for goal in goals(run, case)) else f"**{ratio}**"


# -- the picture ----------------------------------------------------------------------------------------

FASTER, SLOWER, ROUNDS, DARK = "#1f6f43", "#b3411f", "#9db4c8", "#333333"
LEFT_OUT = ("Products, float32 on two threads", "Products, bfloat16 on one thread")  # of the picture, which has a row for each other case
RATIOS = (0.02, 10)  # the ends of the axis


def draw(classes: list[Newest], path: Path) -> bool:
    """A column for each class, a row for each case: the ratio as a dot, its rounds as a line, the goal as a mark. False where there is no
    matplotlib, or nothing to draw."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False

    rows = _rows(classes)
    if not rows:
        return False
    figure = Figure(figsize=(4.2 + 2.6 * len(classes), 0.27 * len(rows) + 1.8), layout="constrained")
    FigureCanvasAgg(figure)
    columns = figure.subplots(1, len(classes), sharey=True, squeeze=False)[0]
    for axes, measured in zip(columns, classes):
        _draw_class(axes, measured, rows)
    _name_rows(columns[0], rows)
    figure.suptitle(f"Time of ampc divided by the time of torch {classes[0].runs[0]['torch']}, on {THREADS} threads.\n"
                    "Left of the dotted line, ampc is faster; at 0.5, it takes half of torch's time.", fontsize=10)
    _legend(figure)
    figure.savefig(path, dpi=80)
    return True


def _rows(classes: list[Newest]) -> list[Any]:
    """From the top: the name of a group, then those of its cases that were measured."""
    rows: list[Any] = []
    for group, cases in GROUPS.items():
        shown = [case for case in cases if any(c.run_of(case) for c in classes)]
        rows += [group, *shown] if shown and group not in LEFT_OUT else []
    return rows


def _name_rows(axes: Any, rows: list[Any]) -> None:
    names = [row if isinstance(row, str) else row.label for row in rows]
    axes.set_yticks(range(len(rows)), [name.replace("`", "") for name in names], fontsize=8.5)
    for text, row in zip(axes.get_yticklabels(), rows):
        if isinstance(row, str):
            text.set_fontweight("bold")
    axes.set_ylim(len(rows) - 0.4, -0.6)


def _draw_class(axes: Any, measured: Newest, rows: list[Any]) -> None:
    for y, row in enumerate(rows):
        if isinstance(row, str):
            axes.axhspan(y - 0.5, y + 0.5, color="#eef1f4", zorder=0)
        else:
            _draw_case(axes, y, measured.run_of(row), row)
    axes.axvline(1, color=DARK, lw=0.8, ls=":", zorder=1)
    axes.set_xscale("log")
    axes.set_xlim(*RATIOS)
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks], fontsize=8)
    axes.minorticks_off()
    axes.grid(axis="x", color="#e6e9ec", lw=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    run = measured.runs[0]
    axes.set_title(measured.cpu.title, fontsize=10, fontweight="bold", pad=16)
    axes.annotate(f"{cpu_name(run)}, {'held to this class' if held(run) else 'its own class'}", (0.5, 1), (0, 4), "axes fraction",
                  textcoords="offset points", ha="center", fontsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _draw_case(axes: Any, y: int, run: Optional[dict], case: Case) -> None:
    ratios = ratios_of(run, case) if run else []
    if run is None or not ratios:
        axes.annotate("torch raises an error" if run else "not measured", (1, y), fontsize=6.5, color="#888888", ha="center", va="center")
        return
    least, most = RATIOS
    low, mid, high = (min(max(r, least), most) for r in (ratios[0], statistics.median(ratios), ratios[-1]))
    axes.plot([low, high], [y, y], color=ROUNDS, lw=5, solid_capstyle="round", zorder=1)
    axes.plot(mid, y, "o", color=FASTER if mid <= 1 else SLOWER, ms=6, zorder=3)
    for _ in _ratio_goal(run, case):
        axes.plot([case.bound, case.bound], [y - 0.36, y + 0.36], color=DARK, lw=1.8, zorder=2)
    axes.annotate(ratio_text(run, case, 2).replace("under", "<"), (1, y), xycoords=("axes fraction", "data"), fontsize=8, ha="right", va="center")


def _legend(figure: Any) -> None:
    """What the marks mean, in words."""
    from matplotlib.lines import Line2D

    meaning = {"ampc is faster: the median of all rounds": {"marker": "o", "ls": "", "color": FASTER, "ms": 7},
               "torch is faster: the median of all rounds": {"marker": "o", "ls": "", "color": SLOWER, "ms": 7},
               "all rounds, from the lowest ratio to the highest": {"color": ROUNDS, "lw": 5, "solid_capstyle": "round"},
               "the project's goal: at most this": {"marker": "|", "ls": "", "color": DARK, "ms": 12, "mew": 2},
               "equally fast": {"color": DARK, "lw": 0.8, "ls": ":"}}
    handles = [Line2D([], [], **style) for style in meaning.values()]
    figure.legend(handles, list(meaning), loc="outside lower center", ncols=3, fontsize=8.5, frameon=False)


# -- RESULTS.md -----------------------------------------------------------------------------------------


def results_text(results: list[dict]) -> str:
    text = ["# Results", "", "Generated by `python benchmarks/compare.py --report` from the raw rounds in `benchmarks/rounds/`. Ratios of times;",
            "absolute times are those of a shared machine and only show the order of size. A class of CPUs is named by its widest instructions.",
            "Both libraries were held to those of the class, also where the CPU has more. Rounds from before there were classes count under the",
            "class of their machine, and were held to nothing.", "", PICTURE, "", "## Classes side by side", "",
            f"The time of ampc divided by torch's on {THREADS} threads, the newest run of each case. A bold ratio misses one of its goals.", "",
            ratio_table(side_by_side(results)), ""]
    for cpu in CLASSES.values():
        runs = [r for r in results if class_of(r) is cpu]
        text += [f"## {cpu.title}", "", *([] if runs else ["Not measured yet.", ""])]
        for r in runs:
            text += heading(r) + [table(r), ""] + ([busy_table(r), ""] if r.get("busy") else [])
    return "\n".join(text)


def write() -> None:
    results = read_rounds()
    (HERE / "RESULTS.md").write_text(results_text(results))
    draw(side_by_side(results), HERE.parent / "docs" / "results.png")
