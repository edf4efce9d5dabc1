"""Valid calls over the public API, as text; what the names in it stand for is in wrong_calls.py."""

from __future__ import annotations

from pathlib import Path

UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc erfinv exp exp2 expm1 floor frac isfinite isinf isnan isneginf isposinf log log10 log1p log2
logical_not neg positive rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc nan_to_num sum mean prod
std var median any all argmax argmin max min numel count_nonzero ravel flatten fliplr flipud diagflat corrcoef cov pinverse inverse
clone detach zeros_like ones_like rand_like randn_like empty_like is_floating_point bernoulli poisson nonzero argwhere unique t squeeze nansum nanmean nanmedian amax amin aminmax
isreal"""
BINARY = """add sub mul div true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2 hypot copysign logaddexp logaddexp2 xlogy heaviside eq ne lt le gt ge
logical_and logical_or logical_xor isclose allclose float_power rsub cosine_similarity pairwise_distance"""
ACTIVATIONS = "relu relu6 silu gelu mish softplus elu selu celu leaky_relu hardtanh hardswish hardsigmoid logsigmoid softsign tanhshrink softshrink hardshrink tanh sigmoid"
LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div poisson_nll_loss soft_margin_loss hinge_embedding_loss multilabel_soft_margin_loss"
MODULES = """ReLU ReLU6 SiLU GELU Mish Softplus ELU SELU CELU LeakyReLU Hardtanh Hardswish Hardsigmoid LogSigmoid Softsign Tanhshrink Softshrink Hardshrink Tanh Sigmoid Identity Flatten RReLU
Dropout AlphaDropout GLU"""
LOSS_MODULES = "MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss KLDivLoss PoissonNLLLoss SoftMarginLoss HingeEmbeddingLoss MultiLabelSoftMarginLoss"

VALID = (Path(__file__).parent / "valid_calls.txt").read_text(encoding="utf-8")


def valid() -> list[str]:
    calls = [line for line in VALID.splitlines() if line]
    calls += [f"torch.{name}(t(3, 3))" for name in UNARY.split()] + [f"torch.{name}(t(2, 3), t(3))" for name in BINARY.split()]
    calls += [f"t(3, 3).{name}()" for name in UNARY.split()[:44]]
    calls += [f"F.{name}(t(2, 3))" for name in ACTIVATIONS.split()] + [f"F.{name}(t(2, 3), t(2, 3))" for name in LOSSES.split()]
    calls += [f"nn.{name}()(t(2, 4))" for name in MODULES.split()] + [f"nn.{name}()(t(2, 3), t(2, 3))" for name in LOSS_MODULES.split()]
    return calls
