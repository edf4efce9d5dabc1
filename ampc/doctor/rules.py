"""The misuse rules, which the guard reports while a script runs and ``ampc check`` finds in source. Each has a page in docs/rules/."""

from __future__ import annotations

from typing import Dict

RUN: Dict[str, str] = {
    "clip-scaled-gradients": "gradients are clipped, or their norm is taken, while they are multiplied by the loss scale",
    "edit-scaled-gradients": "gradients are written by hand while they are multiplied by the loss scale",
    "step-on-scaled-gradients": "optimizer.step() is called directly on gradients that are multiplied by the loss scale",
    "loss-not-scaled": "scaler.step() divides gradients by a scale that their loss was never multiplied by",
    "unscale-before-accumulation": "scaled gradients are added to some that unscale_() has divided already",
    "mixed-scales": "gradients of different scales are added",
    "leftover-gradients": "scaled gradients are added to those of an earlier iteration",
    "update-between-steps": "update() came between backward and the step of its gradients",
    "other-scaler": "gradients are unscaled by another GradScaler than the one that scaled them",
    "scheduler-after-skip": "a scheduler goes on although the scaler skipped every step since it last did",
    "fp16-without-scaler": "a model is trained in float16 without a GradScaler",
    "scaler-without-fp16": "a GradScaler scales where nothing runs in float16",
    "backward-under-autocast": "backward() is called within an autocast region",
    "autocast-without-effect": "an autocast region cannot make anything faster here",
}

SOURCE: Dict[str, str] = {
    **{rule: RUN[rule] for rule in ("clip-scaled-gradients", "step-on-scaled-gradients", "unscale-before-accumulation", "mixed-scales",
                                    "update-between-steps", "fp16-without-scaler", "scaler-without-fp16", "backward-under-autocast")},
    "update-missing": "scaler.step() without scaler.update()",
    "scaler-in-loop": "a GradScaler is made anew in every step",
    "scheduler-before-optimizer": "scheduler.step() comes before the optimizer's step",
    "closure-without-scale": "a closure for scaler.step() does not scale its loss",
    "half-model-with-scaler": "the model's parameters are float16 under a GradScaler",
    "item-each-step": ".item() waits for the device in every step",
    "scaler-not-saved": "a checkpoint without the scaler's state",
    "deprecated-spelling": "torch.cuda.amp and torch.cpu.amp in place of torch.amp",
    "softmax-by-hand": "exp(x) / exp(x).sum()",
    "log-of-softmax": "log(softmax(x))",
    "log-of-sigmoid": "log(sigmoid(x)), or of 1 - sigmoid(x)",
    "logsumexp-by-hand": "log(exp(x).sum())",
    "variance-by-difference": "mean(x * x) - mean(x) ** 2",
    "norm-by-hand": "sqrt((x ** 2).sum())",
    "mask-beyond-half": "masks of -1e9 where float16 is used",
}
