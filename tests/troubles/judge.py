"""Compares what ampc said of a script with its label."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from .pair import Pair

# These tell of a machine, of a habit or of an old name, and not of numbers; they are alarms only where a label asks for them.
ASIDE = {"guard autocast-without-effect", "guard step-waits", "check item-each-step", "check deprecated-spelling", "check scaler-not-saved", "guard scaler-without-fp16",
         "check scaler-without-fp16"}
SYMPTOM = "guard loss-not-finite"  # states no cause; said of a script that is right, it is an alarm


def _rule(name: str) -> Set[str]:
    return {f"guard {name}", f"check {name}"}


PRODUCTS = {f"doctor {op}" for op in ("mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "convolution", "mv", "dot", "einsum", "scaled_dot_product_attention")}
ROOTS = {"doctor backward std", "doctor backward var", "doctor backward sqrt", "doctor backward norm", "doctor backward pow", "doctor backward rsqrt", "doctor backward cdist"}
POLES = {"doctor backward log", "doctor backward log2", "doctor backward log10", "doctor backward div", "doctor backward reciprocal"}
DIVISIONS = {"doctor div", "doctor reciprocal", "doctor rsqrt"}

# The causes of the labels, and the findings that state each: the tool, and its rule, operator or kind of error.
CAUSES: Dict[str, Set[str]] = {
    **{rule: _rule(rule) for rule in (
        "clip-scaled-gradients", "edit-scaled-gradients", "step-on-scaled-gradients", "loss-not-scaled", "unscale-before-accumulation", "mixed-scales",
        "leftover-gradients", "update-between-steps", "other-scaler", "scheduler-after-skip", "fp16-without-scaler", "scaler-without-fp16",
        "backward-under-autocast", "scaler-in-loop", "closure-without-scale", "scaler-not-saved")},
    "update-missing": {*_rule("update-missing"), "error RuntimeError"},
    "half-parameters": {*_rule("half-model-with-scaler"), *_rule("half-parameters"), "error ValueError"},
    "scheduler-before-optimizer": {*_rule("scheduler-before-optimizer"), "warning UserWarning"},
    "softmax-by-hand": {*_rule("softmax-by-hand"), *_rule("log-of-softmax"), "doctor exp"},
    "logsumexp-by-hand": {*_rule("logsumexp-by-hand"), "doctor exp", "doctor log"},
    "log-of-softmax": {*_rule("log-of-softmax"), "doctor log", "doctor backward log"},
    "log-of-sigmoid": {*_rule("log-of-sigmoid"), "doctor log", "doctor backward log"},
    "log-of-zero": {"doctor log", "doctor log2", "doctor log10", *POLES},
    "exp-overflow": {"doctor exp", "doctor expm1", "doctor cosh", "doctor sinh"},
    "mask-beyond-half": {*_rule("mask-beyond-half"), "doctor softmax", "doctor cast", "doctor masked_fill", "doctor mul", "doctor add"},
    "row-fully-masked": {"doctor softmax", "doctor log_softmax"},
    "variance-by-difference": {*_rule("variance-by-difference"), "doctor sqrt", "doctor rsqrt"},
    "norm-by-hand": {*_rule("norm-by-hand"), *ROOTS},
    "root-at-zero": ROOTS,
    "norm-overflow": {"doctor linalg_vector_norm", *_rule("norm-by-hand"), "doctor sum", "doctor square", "doctor pow", "doctor norm", "doctor mul"},
    "division-by-zero": {*DIVISIONS, *POLES},
    "epsilon-too-small": {*DIVISIONS, *POLES, *ROOTS, "doctor log"},
    "product-overflow": PRODUCTS,
    "quotient-overflow": {"doctor div", "doctor mul"},
    "sum-overflow": {"doctor mse_loss", "doctor sum", "doctor mean", "doctor cumsum", "doctor add", "doctor index_add", "doctor scatter_add",
                     *_rule("loss-outside-region")},
    "power-overflow": {"doctor backward pow", "doctor pow", "doctor square", "doctor mul", "doctor prod", "doctor cumprod"},
    "power-of-zero": {"doctor pow"},
    "cast-overflow": {"doctor cast"},
    "ctc-without-alignment": {"doctor ctc_loss"},
    "where-gradient": {"doctor backward where", *POLES, *ROOTS, "doctor backward exp"},
    "domain": {"doctor backward atanh", "doctor acos", "doctor asin", "doctor sqrt", "doctor pow", "doctor log", "doctor atanh", "doctor acosh", "doctor backward acos", "doctor backward asin"},
    "deviation-of-one": {"doctor std", "doctor var", "warning UserWarning"},
    "mean-of-nothing": {"doctor mean", "doctor div", "doctor cross_entropy", "doctor nll_loss"},
    "bad-data": {"doctor data"},
    "bad-parameter": {"doctor parameter"},
    "bad-buffer": {"doctor buffer"},
    "divergence": {"ledger divergence", "guard divergence"},
    "gradient-overflow": {"ledger model", "ledger scale"},
    "weights-too-coarse": {"guard weights-too-coarse"},  # an update is smaller than half a unit of the last digit
    "sum-too-coarse": {"guard sum-too-coarse"},  # values are added to a far larger one in 16 bits
    "count-too-coarse": {"guard count-too-coarse"},  # integers above 2048 in float16, above 256 in bfloat16
    "difference-too-coarse": {"guard difference-too-coarse"},  # two 16-bit values of one size are subtracted
    "function-without-custom-fwd": {*_rule("function-without-custom-fwd"), "error RuntimeError"},
    "graph-cut": {*_rule("graph-cut"), "error RuntimeError", "error AssertionError"},
    "unscale-twice": {*_rule("unscale-twice"), *_rule("unscale-before-accumulation"), "error RuntimeError"},
    "step-twice": {*_rule("step-twice"), *_rule("step-on-scaled-gradients"), "error RuntimeError"},
    "no-gradients": {*_rule("no-gradients"), "error AssertionError"},
    "dtype-mismatch": {"error RuntimeError", "error TypeError"},
    "mixed-scales": {*_rule("mixed-scales"), "error AssertionError"},
    "not-scaled-by-scaler": {"error AssertionError", "error RuntimeError", *_rule("loss-not-scaled")},
    "state-not-loaded": {*_rule("state-not-loaded"), *_rule("scaler-not-saved")},
    "scale-frozen": {*_rule("scale-frozen"), "ledger model"},
    "loss-not-divided": _rule("loss-not-divided"),
    "gradients-not-zeroed": {*_rule("gradients-not-zeroed"), *_rule("leftover-gradients")},
    "wrong-parameters": _rule("wrong-parameters"),
    "rate-too-coarse": _rule("rate-too-coarse"),
    "metric-is-scaled": _rule("metric-is-scaled"),
    "accumulation-lost": _rule("accumulation-lost"),
    "clip-after-step": _rule("clip-after-step"),
    "empty-scaler-state": {*_rule("empty-scaler-state"), "error RuntimeError"},
    "scaler-disabled": {*_rule("scaler-disabled"), "warning UserWarning"},
    "region-of-other-device": {*_rule("region-of-other-device"), "warning UserWarning"},
    "scaled-twice": _rule("scaled-twice"),
    "clip-raises": {*_rule("clip-raises"), "error RuntimeError"},
    "recomputed-in-other-precision": _rule("recomputed-in-other-precision"),
    "stale-weights": _rule("stale-weights"),
    "penalty-of-scaled": _rule("penalty-of-scaled"),
    "step-not-skipped": {*_rule("step-not-skipped"), "doctor parameter"},
}


class Verdict(NamedTuple):
    """Of the diagnosis of one broken script."""

    found: bool
    cause: bool
    operator: bool  # also where the label names none, or nothing that was found names one
    line: bool
    fix: bool
    beside: List[str]  # findings that state another cause

    @property
    def right(self) -> bool:
        return self.found and self.cause and self.operator and self.line and self.fix and not self.beside


def name(finding: Dict[str, Any]) -> str:
    """The tool and what it states: ``doctor exp``."""
    return f"{finding['tool']} {finding['kind']}"


def alarms(findings: List[Dict[str, Any]]) -> List[str]:
    """What was said of a script that is right."""
    return [text(f) for f in findings if name(f) not in ASIDE]


def text(finding: Dict[str, Any]) -> str:
    """In a line."""
    return f"line {finding['line']}: {name(finding)}: {_short(finding['text'])}"


def _short(said: str) -> str:
    """The first line, without the file of a doctor's finding."""
    return re.sub(r"^/\S*\.py:\d+: ", "", said.splitlines()[0])[:150]


def verdict(pair: Pair, findings: List[Dict[str, Any]]) -> Verdict:
    """Of a broken script. A finding counts as right if it states the label's cause; its line and fix are then compared."""
    cause, also = CAUSES[pair.label["cause"]], set().union(*(CAUSES[c] for c in pair.words("also")))
    stated = [f for f in findings if name(f) in cause]
    beside = [text(f) for f in findings if name(f) not in cause | also | ASIDE and not _follows(pair.label["shows"], f)]
    lined = [f for f in stated if f["line"] in pair.here or f["tool"] == "ledger"]
    fixed = [f for f in lined or stated if any(w.lower() in f["fix"].lower() for w in pair.words("fix"))]
    ops = [f["kind"].split()[-1] for f in stated if f["tool"] == "doctor"]
    operators = pair.words("operator")
    operator = not operators or not ops or any(op in operators for op in ops)
    return Verdict(any(name(f) not in (ASIDE | {SYMPTOM}) - cause for f in findings), bool(stated), operator and bool(stated), bool(lined), bool(fixed), beside)


def _follows(shows: str, finding: Dict[str, Any]) -> bool:
    """Whether a finding tells the symptom alone: that the model or the loss overflowed, or an error that torch has, too."""
    return finding["tool"] == "error" if shows == "error" else name(finding) in ("ledger model", SYMPTOM) or finding["text"].startswith("GradScaler:")


def tools(rows: List[Tuple[Pair, List[Dict[str, Any]]]]) -> List[str]:
    """How many broken scripts each tool, alone, states the cause of, at the right line: lines of text."""
    lines = [f"{'':30}{'speaks':>8}{'cause':>8}{'line':>8}{'fix':>8}"]
    for tool in ("guard", "doctor", "check", "ledger", "warning", "error"):
        some = [verdict(pair, own) for pair, findings in rows if (own := [f for f in findings if f["tool"] == tool])]
        lines.append(f"{tool:30}{sum(v.found for v in some):>8}{sum(v.cause for v in some):>8}{sum(v.line for v in some):>8}{sum(v.fix for v in some):>8}")
    return lines


def table(rows: List[Tuple[str, Verdict]]) -> List[str]:
    """How many of each group were found, and rightly: lines of text."""
    groups: Dict[str, List[Verdict]] = {}
    for group, one in rows:
        groups.setdefault(group, []).append(one)
    lines = [f"{'':30}{'scripts':>8}{'found':>8}{'cause':>8}{'operator':>9}{'line':>8}{'fix':>8}{'beside':>8}{'right':>8}"]
    for group, some in [*sorted(groups.items()), ("all", [v for _, v in rows])]:
        counts = [len(some), *(sum(bool(v[i]) for v in some) for i in range(6)), sum(v.right for v in some)]
        lines.append(f"{group:30}" + "".join(f"{n:>{9 if i == 3 else 8}}" for i, n in enumerate(counts)))
    return lines
