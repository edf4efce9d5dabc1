"""Tables and the picture, from raw rounds."""

from __future__ import annotations

import json
import statistics
import textwrap
from pathlib import Path
from typing import Any

from cases import BUSY, CASES, Case

HERE = Path(__file__).resolve().parent
PICTURE = "![The time of ampc divided by torch's, for each kind of work](../docs/results.png)"


def unit(seconds: float) -> str:
    for scale, name in ((1, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {name}"
    return f"{seconds:.3g} s"


def verdict(ratio: float, bound: Any) -> str:
    return "" if bound is None else f"at most {bound}" + ("" if ratio <= bound else " - **missed**")


def of_limit(case: Case, seconds: float, limits: dict) -> str:
    """The rate, and its share of what the machine gave at best in the same run."""
    limit = limits.get(case.limit) if case.limit else None
    if not limit:
        return ""
    rate = case.amount / seconds / 1e9
    return f"{rate:.3g} of {limit:.4g} {'GB/s' if case.limit.endswith('gb_s') else 'GFLOP/s'}, {100 * rate / limit:.0f} %"


def ratios_of(result: dict, case: Case) -> list[float]:
    return sorted(p["ampc"] / p["torch"] for p in result["rounds"].get(case.name, []))


def table(result: dict) -> str:
    lines = ["| work | ampc | torch | ampc / torch | lowest to highest round | goal | ampc's rate |", "|---|---|---|---|---|---|---|"]
    for case in CASES:
        pairs, ratios = result["rounds"].get(case.name), ratios_of(result, case)
        if not pairs:
            continue
        mid = {k: statistics.median(p[k] for p in pairs) for k in ("ampc", "torch")}
        ratio = statistics.median(ratios)
        lines.append(f"| {case.what} | {unit(mid['ampc'])} | {unit(mid['torch'])} | {ratio:.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} | "
                     f"{verdict(ratio, case.bound)} | {of_limit(case, mid['ampc'], result['limits'])} |")
    return "\n".join(lines)


def busy_table(result: dict) -> str:
    """Times beside busy processes over quiet times, each library against itself."""
    lines = ["| step | busy processes | ampc, busy / quiet | torch, busy / quiet | goal for ampc |", "|---|---|---|---|---|"]
    for case in BUSY:
        for row in result.get("busy", {}).get(case.name, []):
            ratio = {k: statistics.median(row[k]["busy"]) / statistics.median(row[k]["quiet"]) for k in ("ampc", "torch")}
            lines.append(f"| {case.what} | {row['processes']} | {ratio['ampc']:.2f} | {ratio['torch']:.2f} | {verdict(ratio['ampc'], case.bound)} |")
    return "\n".join(lines)


def heading(r: dict) -> list[str]:
    commit = r["commit"][:12] + ("+changes" if r["commit"].endswith("+changes") else "")
    names = {"copy_gb_s": "copy {:.1f} GB/s", "add_gb_s": "read-modify-write {:.1f} GB/s", "f32_gflop_s": "float32 FMA {:.0f} GFLOP/s",
             "bf16_gflop_s": "bfloat16 tiles {:.0f} GFLOP/s", "sgemm_1024_gflop_s": "NumPy's float32 product of 1024 {:.0f} GFLOP/s"}
    best = ", ".join(names[k].format(v) for k, v in r["limits"].items() if k in names)
    return [f"## {r['date']} UTC, commit {commit}", "",
            f"{r['machine']}; {r['threads']} threads; torch {r['torch']}; {r['blas']}; load average {r['load_before']:.2f} before, "
            f"{r['load_after']:.2f} after. At best in the same run: {best}.", ""]


FASTER, SLOWER, ROUNDS, DARK = "#1f6f43", "#b3411f", "#9db4c8", "#333333"


def draw(result: dict, path: Path) -> bool:
    """Every ratio as a dot with its rounds as a line, and the goal as a mark. False where there is no matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False

    shown = [c for c in CASES if ratios_of(result, c)]
    figure = Figure(figsize=(10, 0.42 * len(shown) + 2.1))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for y, case in enumerate(reversed(shown)):
        draw_case(axes, y, ratios_of(result, case), case.bound)
    axes.axvline(1, color=DARK, lw=0.8, ls=":")
    axes.set_yticks(range(len(shown)), [textwrap.fill(c.what.replace("`", ""), 52) for c in reversed(shown)], fontsize=8)
    axes.set_ylim(-0.6, len(shown) - 0.2)
    axes.set_xscale("log")
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("time of ampc / time of torch; at 0.5, ampc takes half of torch's time", fontsize=9)
    axes.set_title(f"{result['machine']}, {result['threads']} threads, torch {result['torch']}, at {result['commit'][:60]}", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    legend(figure)
    figure.savefig(path, dpi=90, bbox_inches="tight")
    return True


def draw_case(axes: Any, y: int, ratios: list[float], goal: Any) -> None:
    mid = statistics.median(ratios)
    axes.plot([ratios[0], ratios[-1]], [y, y], color=ROUNDS, lw=5, solid_capstyle="round", zorder=1)
    axes.plot(mid, y, "o", color=FASTER if mid <= 1 else SLOWER, ms=8, zorder=3)
    if goal is not None:
        axes.plot([goal, goal], [y - 0.32, y + 0.32], color=DARK, lw=2, zorder=2)
    axes.annotate(f"{mid:.2f}", (mid, y), textcoords="offset points", xytext=(0, 7), ha="center", fontsize=8)


def legend(figure: Any) -> None:
    """What the marks mean, in words."""
    from matplotlib.lines import Line2D

    meaning = {"ampc is faster: the median of all rounds": {"marker": "o", "ls": "", "color": FASTER, "ms": 8},
               "torch is faster: the median of all rounds": {"marker": "o", "ls": "", "color": SLOWER, "ms": 8},
               "all rounds, from the lowest ratio to the highest": {"color": ROUNDS, "lw": 5, "solid_capstyle": "round"},
               "the project's goal: at most this": {"marker": "|", "ls": "", "color": DARK, "ms": 14, "mew": 2},
               "equally fast": {"color": DARK, "lw": 0.8, "ls": ":"}}
    figure.legend([Line2D([], [], **style) for style in meaning.values()], list(meaning), loc="upper center", bbox_to_anchor=(0.45, 0.04), ncols=3,
                  fontsize=8.5, frameon=False)


def newest_of_each(results: list[dict]) -> dict:
    """One result for the picture: every case's rounds from its newest run on the newest run's machine."""
    first = results[0]
    rounds: dict = {}
    commits: dict = {}
    for r in results:
        if (r["machine"], r["threads"], r["torch"]) != (first["machine"], first["threads"], first["torch"]):
            continue
        new = {name: pairs for name, pairs in r["rounds"].items() if name not in rounds}
        rounds.update(new)
        commits.update({r["commit"][:7]: True} if new else {})
    return {**first, "rounds": rounds, "commit": ", ".join(commits)}


def write() -> None:
    files = sorted((HERE / "rounds").glob("*.json"), reverse=True)
    results = [json.loads(path.read_text()) for path in files]
    text = ["# Results", "", "Generated by `python benchmarks/compare.py --report` from the raw rounds in `benchmarks/rounds/`. Ratios of times;",
            "absolute times are those of a shared machine and only show the order of size.", "", PICTURE, ""]
    for r in results:
        text += heading(r) + [table(r), ""] + ([busy_table(r), ""] if r.get("busy") else [])
    (HERE / "RESULTS.md").write_text("\n".join(text))
    draw(newest_of_each(results), HERE.parent / "docs" / "results.png")
