"""The misuse rules, which the guard reports while a script runs and ``ampc check`` finds in source. Each has a page in docs/rules/."""

from __future__ import annotations

from typing import Dict

RUN: Dict[str, str] = {
    "clip-scaled-gradients": "gradients are clipped, or their norm is taken, while they are multiplied by the loss scale",
    "edit-scaled-gradients": "gradients are changed by hand while they are multiplied by the loss scale",
    "step-on-scaled-gradients": "optimizer.step() is called directly on gradients that are multiplied by the loss scale",
    "loss-not-scaled": "scaler.step() divides gradients by the scale, but their loss was not multiplied by it",
    "unscale-before-accumulation": "scaled gradients are added to gradients that unscale_() has divided already",
    "mixed-scales": "gradients with different loss scales are added",
    "leftover-gradients": "scaled gradients are added to those of an earlier iteration",
    "update-between-steps": "update() is called between backward() and the step that uses its gradients",
    "other-scaler": "one GradScaler scales the gradients and another one unscales them",
    "scaled-twice": "scaler.scale() is called with a loss that is scaled already",
    "step-twice": "optimizer.step() is called after scaler.step() on the same gradients",
    "clip-after-step": "gradients are clipped after scaler.step() has used them",
    "penalty-of-scaled": "a new loss is made of gradients of a scaled loss that nobody has divided by the scale",
    "metric-is-scaled": "ReduceLROnPlateau is given a loss that is multiplied by the scale",
    "weights-too-coarse": "an optimizer's updates are smaller than the digits of 16-bit parameters, which stay as they are",
    "sum-too-coarse": "a running sum in 16 bits does not grow any more",
    "count-too-coarse": "positions, indices or time steps are rounded to 16 bits, where neighbours share a value",
    "difference-too-coarse": "16-bit values that agree in nearly all their digits are subtracted, and the difference is divided by a small number",
    "rate-too-coarse": "a rate, or one minus a rate, is 0 in 16 bits",
    "step-not-skipped": "a running value keeps the infinity of a step that the scaler skipped",
    "recomputed-in-other-precision": "a Function repeats its forward pass in backward, outside of autocast",
    "scheduler-after-skip": "a scheduler steps although the scaler skipped every optimizer step since its last call",
    "fp16-without-scaler": "a model is trained in float16 without a GradScaler",
    "scaler-without-fp16": "a GradScaler is used and nothing runs in float16",
    "backward-under-autocast": "backward() is called inside an autocast region",
    "bce-under-autocast": "binary_cross_entropy or BCELoss is called under autocast, which is an error on a GPU",
    "loss-not-finite": "the loss is inf or nan, and no GradScaler skips the step",
    "autocast-without-effect": "an autocast region makes nothing faster on this machine, or with these sizes",
    "unscale-in-no-sync": "gradients are divided by the scale inside no_sync(), before the ranks have averaged them",
    "sampler-without-set-epoch": "a DistributedSampler is not told the epoch, so all epochs have one order",
    "checkpoint-by-every-rank": "several ranks save the same file",
    "optimizer-before-sharding": "an optimizer is made before fully_shard() puts other parameters in the place of those that it was given",
    "step-waits": "scaler.step() waits for the GPU, because it must know whether it skips the optimizer's step",
}

BCE_FIX = ("give the logits to BCEWithLogitsLoss (or binary_cross_entropy_with_logits) and leave the sigmoid before it out; or call it within "
           "autocast(..., enabled=False), on float32")

# About speed alone: told once while a script runs, and never an error; `ampc check` exits with 0.
NOTES = {"autocast-without-effect", "step-waits", "item-each-step"}

SOURCE: Dict[str, str] = {
    **{rule: RUN[rule] for rule in ("clip-scaled-gradients", "step-on-scaled-gradients", "unscale-before-accumulation", "mixed-scales",
                                    "update-between-steps", "scaled-twice", "step-twice", "clip-after-step", "metric-is-scaled",
                                    "fp16-without-scaler", "scaler-without-fp16", "backward-under-autocast", "bce-under-autocast",
                                    "rate-too-coarse")},
    "rank-dependent-backward": "backward() stands under a condition that only some ranks fulfil",
    "update-missing": "scaler.step() is called and scaler.update() is not",
    "scaler-in-loop": "a new GradScaler is made in every step",
    "scheduler-before-optimizer": "scheduler.step() comes before the optimizer's step",
    "closure-without-scale": "the closure that scaler.step() calls does not scale its loss",
    "loss-outside-region": "a loss is computed in float16, outside the autocast region that has made its input",
    "half-model-with-scaler": "the model's parameters are float16 under a GradScaler",
    "unscale-twice": "unscale_() is called twice for an optimizer between two calls of update()",
    "no-gradients": "zero_grad() stands between backward() and the step",
    "accumulation-lost": "zero_grad() is called for every micro-batch, and a step only after several",
    "loss-not-divided": "losses of several micro-batches are added up and not divided by their number",
    "wrong-parameters": "an optimizer is made before a part of its model is replaced",
    "item-each-step": ".item() waits for the device in every step",
    "scaler-not-saved": "a checkpoint is saved without the scaler's state",
    "deprecated-spelling": "torch.cuda.amp or torch.cpu.amp is used in place of torch.amp",
    "softmax-by-hand": "softmax is written as exp(x) / exp(x).sum()",
    "log-of-softmax": "log_softmax is written as log(softmax(x))",
    "log-of-sigmoid": "logsigmoid is written as log(sigmoid(x)) or log(1 - sigmoid(x))",
    "logsumexp-by-hand": "logsumexp is written as log(exp(x).sum())",
    "variance-by-difference": "variance is written as mean(x * x) - mean(x) ** 2",
    "norm-by-hand": "a norm is written as sqrt((x ** 2).sum())",
    "function-without-custom-fwd": "an autograd Function multiplies under autocast without custom_fwd and custom_bwd",
    "mask-beyond-half": "a mask uses -1e9, which float16 cannot hold",
}
