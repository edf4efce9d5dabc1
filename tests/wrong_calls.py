"""Wrong calls over the public API, made from valid ones by spoiling each argument in turn, and what torch and ampc say of them.

VALID has calls as text, in which ``t(2, 3)`` is a float32 tensor with values between 0 and 1, ``n`` an int64 one of zeros and ones, ``b``
a bool one. ``wrong_calls()`` replaces an argument by one of another type, shape, dtype, sign or size, leaves it out, or adds one; those that
torch itself refuses are wrong. ``python wrong_calls.py [WORD]`` lists where ampc accepts or raises another type."""

from __future__ import annotations

import ast
import sys
import warnings
from typing import Any, Iterator

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

VALID = """
torch.add(t(2, 3), t(3), alpha=2)
torch.sub(t(2, 3), t(3), alpha=2)
torch.div(t(2, 3), t(3), rounding_mode="floor")
torch.addcmul(t(2, 3), t(2, 3), t(3), value=0.5)
torch.addcdiv(t(2, 3), t(2, 3), t(3), value=0.5)
torch.lerp(t(2, 3), t(2, 3), 0.5)
torch.lerp(t(2, 3), t(2, 3), t(3))
torch.clamp(t(2, 3), 0.1, 0.5)
torch.clamp(t(2, 3), min=t(3), max=t(3))
torch.where(b(2, 3), t(2, 3), t(3))
torch.masked_fill(t(2, 3), b(2, 3), 0.5)
torch.masked_select(t(2, 3), b(2, 3))
torch.masked_scatter(t(2, 3), b(2, 3), t(6))
torch.bitwise_and(n(2, 3), n(3))
torch.bitwise_or(n(2, 3), n(3))
torch.bitwise_xor(n(2, 3), n(3))
torch.bitwise_not(n(2, 3))
torch.bitwise_left_shift(n(2, 3), n(3))
torch.bitwise_right_shift(n(2, 3), n(3))
torch.gcd(n(2, 3), n(3))
torch.lcm(n(2, 3), n(3))
torch.ldexp(t(2, 3), n(3))
torch.logit(t(2, 3), 0.1)
torch.round(t(2, 3), decimals=1)
torch.nan_to_num(t(2, 3), 0.0, 1.0, -1.0)
torch.threshold(t(2, 3), 0.1, 0.5)
torch.prelu(t(2, 3), t(3))
torch.rrelu(t(2, 3), 0.1, 0.3)
torch.dropout(t(2, 3), 0.5, True)
torch.celu(t(2, 3), 1.0)
torch.hardshrink(t(2, 3), 0.5)
torch.sum(t(2, 3), 1)
torch.sum(t(2, 3), dim=(0, 1), keepdim=True)
torch.sum(t(2, 3), dtype=torch.float64)
torch.mean(t(2, 3), 1, True)
torch.prod(t(2, 3), 1)
torch.std(t(2, 3), 1)
torch.var(t(2, 3), 1, correction=0)
torch.std_mean(t(2, 3), 1)
torch.var_mean(t(2, 3), 1)
torch.amax(t(2, 3), 1)
torch.amin(t(2, 3), (0, 1))
torch.aminmax(t(2, 3), dim=1)
torch.max(t(2, 3), 1)
torch.min(t(2, 3), 1, True)
torch.max(t(2, 3), t(3))
torch.median(t(2, 3), 1)
torch.mode(t(2, 3), 1)
torch.argmax(t(2, 3), 1)
torch.argmin(t(2, 3), 1, True)
torch.argsort(t(2, 3), 1, True)
torch.any(b(2, 3), 1)
torch.all(b(2, 3), 1)
torch.norm(t(2, 3), 2, 1)
torch.logsumexp(t(2, 3), 1)
torch.softmax(t(2, 3), 1)
torch.log_softmax(t(2, 3), 1)
torch.cumsum(t(2, 3), 1)
torch.cumprod(t(2, 3), 1)
torch.cummax(t(2, 3), 1)
torch.cummin(t(2, 3), 1)
torch.logcumsumexp(t(2, 3), 1)
torch.cumulative_trapezoid(t(2, 3), dim=1)
torch.trapezoid(t(2, 3), dim=1)
torch.sort(t(2, 3), 1, True)
torch.topk(t(2, 3), 2, 1)
torch.kthvalue(t(2, 3), 2, 1)
torch.quantile(t(2, 3), 0.5, 1)
torch.nanquantile(t(2, 3), 0.5, 1)
torch.quantile(t(2, 3), t(2))
torch.histc(t(2, 3), 4, 0.0, 1.0)
torch.bincount(n(5), t(5), 3)
torch.bucketize(t(2, 3), t(4))
torch.searchsorted(t(4), t(2, 3))
torch.isin(n(2, 3), n(4))
torch.unique(n(5), True)
torch.unique_consecutive(n(5))
torch.diff(t(2, 3), 1, 1)
torch.gradient(t(5))
torch.renorm(t(2, 3), 2, 0, 1.0)
torch.dist(t(2, 3), t(2, 3), 2)
torch.cdist(t(2, 3), t(4, 3), 2.0)
torch.pdist(t(4, 3), 2.0)
torch.mm(t(2, 3), t(3, 4))
torch.bmm(t(2, 3, 4), t(2, 4, 5))
torch.mv(t(2, 3), t(3))
torch.dot(t(3), t(3))
torch.vdot(t(3), t(3))
torch.inner(t(2, 3), t(4, 3))
torch.outer(t(3), t(4))
torch.ger(t(3), t(4))
torch.matmul(t(2, 3), t(3, 4))
torch.matmul(t(2, 2, 3), t(2, 3, 4))
torch.addmm(t(2, 4), t(2, 3), t(3, 4), beta=0.5, alpha=2)
torch.addmv(t(2), t(2, 3), t(3))
torch.addr(t(3, 4), t(3), t(4))
torch.addbmm(t(3, 5), t(2, 3, 4), t(2, 4, 5))
torch.baddbmm(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5))
torch.chain_matmul(t(2, 3), t(3, 4))
torch.tensordot(t(2, 3), t(3, 4), 1)
torch.einsum("ij,jk->ik", t(2, 3), t(3, 4))
torch.kron(t(2, 3), t(3, 2))
torch.cross(t(2, 3), t(2, 3), dim=1)
torch.trace(t(3, 3))
torch.matrix_power(t(3, 3), 2)
torch.matrix_exp(t(3, 3))
torch.det(t(3, 3))
torch.logdet(spd(3))
torch.slogdet(t(3, 3))
torch.cholesky(spd(3))
torch.cholesky_solve(t(3, 2), spd(3))
torch.qr(t(3, 3))
torch.svd(t(3, 3))
torch.cat([t(2, 3), t(4, 3)], 0)
torch.stack([t(2, 3), t(2, 3)], 1)
torch.hstack([t(2, 3), t(2, 4)])
torch.vstack([t(2, 3), t(4, 3)])
torch.dstack([t(2, 3), t(2, 3)])
torch.column_stack([t(2), t(2, 3)])
torch.block_diag(t(2, 3), t(2, 2))
torch.cartesian_prod(t(2), t(3))
torch.combinations(t(4), 2)
torch.meshgrid(t(2), t(3), indexing="ij")
torch.broadcast_tensors(t(2, 3), t(3))
torch.broadcast_to(t(3), (2, 3))
torch.broadcast_shapes((2, 3), (3,))
torch.atleast_2d(t(3))
torch.chunk(t(4, 3), 2, 0)
torch.split(t(4, 3), 2, 0)
torch.split(t(4, 3), [1, 3], 0)
torch.tensor_split(t(4, 3), 2, 0)
torch.hsplit(t(4, 4), 2)
torch.vsplit(t(4, 4), 2)
torch.dsplit(t(2, 2, 4), 2)
torch.unbind(t(2, 3), 1)
torch.reshape(t(2, 3), (3, 2))
torch.unflatten(t(2, 6), 1, (2, 3))
torch.flatten(t(2, 3, 4), 1, 2)
torch.squeeze(t(2, 1, 3), 1)
torch.unsqueeze(t(2, 3), 1)
torch.transpose(t(2, 3), 0, 1)
torch.permute(t(2, 3, 4), (2, 0, 1))
torch.movedim(t(2, 3, 4), 0, 2)
torch.swapaxes(t(2, 3), 0, 1)
torch.flip(t(2, 3), (0, 1))
torch.roll(t(2, 3), 1, 1)
torch.rot90(t(2, 3), 1, (0, 1))
torch.tile(t(2, 3), (2, 2))
torch.repeat_interleave(t(2, 3), 2, 1)
torch.repeat_interleave(t(2, 3), n(3), 1)
torch.narrow(t(4, 3), 0, 1, 2)
torch.select(t(2, 3), 1, 2)
torch.diagonal(t(3, 3), 0, 0, 1)
torch.diag(t(3), 1)
torch.diag_embed(t(2, 3), 0, 1, 2)
torch.tril(t(3, 3), 1)
torch.triu(t(3, 3), 1)
torch.as_strided(t(6), (2, 3), (3, 1), 0)
torch.gather(t(2, 3), 1, n(2, 2))
torch.scatter(t(2, 3), 1, n(2, 2), t(2, 2))
torch.scatter(t(2, 3), 1, n(2, 2), 0.5)
torch.scatter_add(t(2, 3), 1, n(2, 2), t(2, 2))
torch.scatter_reduce(t(2, 3), 1, n(2, 2), t(2, 2), "sum")
torch.index_select(t(2, 3), 1, n(2))
torch.index_add(t(2, 3), 1, n(2), t(2, 2))
torch.index_copy(t(2, 3), 1, torch.tensor([0, 1]), t(2, 2))
torch.index_fill(t(2, 3), 1, n(2), 0.5)
torch.index_put(t(2, 3), (n(2), n(2)), t(2))
torch.take(t(2, 3), n(2))
torch.take_along_dim(t(2, 3), n(2, 2), 1)
torch.select_scatter(t(2, 3), t(2), 1, 0)
torch.slice_scatter(t(4, 3), t(2, 3), 0, 1, 3)
torch.diagonal_scatter(t(3, 3), t(3))
torch.unravel_index(n(3), (2, 3))
torch.tril_indices(3, 3, 0)
torch.triu_indices(3, 3, 0)
torch.vander(t(3), 3)
torch.multinomial(t(2, 3), 2, False)
torch.normal(t(2, 3), t(2, 3))
torch.normal(0.0, 1.0, (2, 3))
torch.zeros(2, 3)
torch.zeros((2, 3), dtype=torch.float32)
torch.ones(2, 3, device="cpu")
torch.empty((2, 3), requires_grad=True)
torch.full((2, 3), 1.5, dtype=torch.float64)
torch.full_like(t(2, 3), 1.5)
torch.zeros_like(t(2, 3), dtype=torch.float64)
torch.arange(0, 6, 2)
torch.arange(6, dtype=torch.float32)
torch.linspace(0.0, 1.0, 5)
torch.logspace(0.0, 1.0, 5, 10.0)
torch.eye(3, 4)
torch.rand(2, 3)
torch.randn((2, 3))
torch.randint(0, 5, (2, 3))
torch.randint_like(t(2, 3), 0, 5)
torch.randperm(5)
torch.tensor([1.0, 2.0], dtype=torch.float32, requires_grad=True)
torch.as_tensor([1, 2], dtype=torch.float32, device="cpu")
torch.scalar_tensor(1.5)
torch.tensor([[1, 2], [3, 4]])
torch.can_cast(torch.float32, torch.float64)
torch.promote_types(torch.float32, torch.int64)
torch.result_type(t(2), n(2))
torch.set_default_dtype(torch.float32)
torch.set_grad_enabled(True)
torch.manual_seed(3)
torch.set_num_threads(2)
torch.get_rng_state()
torch.set_float32_matmul_precision("highest")
torch.is_tensor(t(2))
torch.device("cpu", 0)
torch.Size((2, 3))
torch.finfo(torch.float32)
torch.iinfo(torch.int64)
torch.autocast("cpu", dtype=torch.bfloat16, enabled=True, cache_enabled=True)
torch.amp.GradScaler("cpu", init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=100, enabled=True)
torch.amp.GradScaler("cpu").scale(t(2))
torch.no_grad()
torch.inference_mode(True)
torch.grid_sampler(t(1, 2, 3, 3), t(1, 2, 2, 2), 0, 0, True)
torch.bilinear(t(2, 3), t(2, 4), t(5, 3, 4), t(5))
torch.conv1d(t(1, 2, 5), t(3, 2, 3), t(3), 1, 1, 1, 1)
torch.gru_cell(t(2, 3), t(2, 4), t(12, 3), t(12, 4), t(12), t(12))
torch.rnn_tanh_cell(t(2, 3), t(2, 4), t(4, 3), t(4, 4), t(4), t(4))
torch.rms_norm(t(2, 3), (3,), t(3), 1e-5)
torch.isreal(t(2, 3))

t(2, 3).add(t(3))
t(2, 3).add_(t(3), alpha=2)
t(2, 3).mul_(t(3))
t(2, 3).div_(t(3))
t(2, 3).pow(2)
t(2, 3).clamp_(0.1, 0.5)
t(2, 3).sum(1, True)
t(2, 3).mean((0, 1))
t(2, 3).max(1)
t(2, 3).argmax(1)
t(2, 3).norm(2, 1)
t(2, 3).softmax(1)
t(2, 3).view(3, 2)
t(2, 3).view(torch.int32)
t(2, 3).view_as(t(3, 2))
t(2, 3).reshape(3, 2)
t(2, 3).reshape_as(t(3, 2))
t(2, 3).expand(4, 2, 3)
t(3).expand_as(t(2, 3))
t(2, 3).repeat(2, 2)
t(2, 3).permute(1, 0)
t(2, 3).transpose(0, 1)
t(2, 3).transpose_(0, 1)
t(2, 3).unsqueeze(0)
t(2, 3).unfold(1, 2, 1)
t(2, 3).flatten(0, 1)
t(2, 3).size(1)
t(2, 3).stride(1)
t(2, 3).to(torch.float64)
t(2, 3).to("cpu", torch.float64)
t(2, 3).type(torch.float64)
t(2, 3).type_as(n(2))
t(2, 3).contiguous()
t(2, 3).copy_(t(3))
t(2, 3).fill_(0.5)
t(2, 3).fill_diagonal_(0.5)
t(2, 3).zero_()
t(2, 3).uniform_(0.0, 1.0)
t(2, 3).normal_(0.0, 1.0)
t(2, 3).exponential_(1.0)
t(2, 3).bernoulli_(0.5)
t(2, 3).geometric_(0.5)
t(2, 3).cauchy_(0.0, 1.0)
t(2, 3).log_normal_(0.0, 1.0)
t(2, 3).random_(0, 5)
t(2, 3).masked_fill_(b(2, 3), 0.5)
t(2, 3).masked_scatter_(b(2, 3), t(6))
t(2, 3).index_fill_(1, n(2), 0.5)
t(2, 3).index_add_(1, n(2), t(2, 2))
t(2, 3).index_copy_(1, torch.tensor([0, 1]), t(2, 2))
t(2, 3).index_put_((n(2), n(2)), t(2))
t(2, 3).scatter_(1, n(2, 2), t(2, 2))
t(2, 3).scatter_add_(1, n(2, 2), t(2, 2))
t(2, 3).gather(1, n(2, 2))
t(2, 3).addcmul_(t(2, 3), t(2, 3))
t(2, 3).addmm_(t(2, 2), t(2, 3))
t(2, 3).lerp_(t(2, 3), 0.5)
t(2, 3).new_full((2, 2), 0.5)
t(2, 3).new_zeros((2, 2))
t(2, 3).new_tensor([1.0, 2.0])
t(2, 3).requires_grad_(True)
t(1).item()
t(2, 3).resize_(3, 2)
t(2, 3).narrow(1, 0, 2)
t(2, 3).select(1, 0)
t(2, 3).index_select(1, n(2))
t(2, 3).split(1, 0)
t(2, 3).chunk(2, 1)
t(2, 3).tril_(1)
t(2, 3).sum_to_size(1, 3)
t(2, 3).roll(1, 0)
t(2, 3).matmul(t(3, 2))
t(2, 3).where(b(2, 3), t(2, 3))
t(2, 3).quantile(0.5, 1)
t(2, 3).put_(n(2), t(2))
t(2, 3).renorm_(2, 0, 1.0)
t(2, 3).sort(1)
t(2, 3).topk(2, 1)
t(2, 3).cumsum(1)
t(2, 3).squeeze_(1)
t(2, 3).swapaxes(0, 1)
t(2, 3).apply_(abs)
leaf(2, 3).register_hook(abs)
t(2, 3)[0]
t(2, 3)[1, 2]
t(2, 3)[n(2)]
t(2, 3)[b(2, 3)]
t(2, 3)[:, 1:2]

F.linear(t(2, 3), t(4, 3), t(4))
F.bilinear(t(2, 3), t(2, 4), t(5, 3, 4), t(5))
F.conv1d(t(1, 2, 5), t(3, 2, 3), t(3), stride=1, padding=1, dilation=1, groups=1)
F.conv2d(t(1, 2, 5, 5), t(3, 2, 3, 3), t(3), stride=(1, 1), padding=(1, 1), dilation=1, groups=1)
F.conv2d(t(1, 2, 5, 5), t(3, 2, 3, 3), padding="same")
F.conv3d(t(1, 2, 5, 5, 5), t(3, 2, 3, 3, 3), t(3), 1, 1)
F.conv_transpose1d(t(1, 2, 5), t(2, 3, 3), t(3), 2, 1, 1)
F.conv_transpose2d(t(1, 2, 5, 5), t(2, 3, 3, 3), t(3), stride=2, padding=1, output_padding=1, groups=1, dilation=1)
F.conv_transpose3d(t(1, 2, 3, 3, 3), t(2, 3, 3, 3, 3), t(3))
F.unfold(t(1, 2, 5, 5), 3, 1, 1, 1)
F.fold(t(1, 18, 25), (5, 5), 3, 1, 1, 1)
F.max_pool1d(t(1, 2, 6), 2, 2, 0)
F.max_pool2d(t(1, 2, 6, 6), 2, stride=2, padding=1, dilation=1, ceil_mode=False, return_indices=False)
F.max_pool3d(t(1, 2, 4, 4, 4), 2)
F.avg_pool1d(t(1, 2, 6), 2, 2, 0)
F.avg_pool2d(t(1, 2, 6, 6), (2, 2), 2, 1, False, True, 3)
F.avg_pool3d(t(1, 2, 4, 4, 4), 2)
F.lp_pool1d(t(1, 2, 6), 2.0, 2)
F.lp_pool2d(t(1, 2, 6, 6), 2.0, 2)
F.adaptive_avg_pool1d(t(1, 2, 6), 3)
F.adaptive_avg_pool2d(t(1, 2, 6, 6), (3, 2))
F.adaptive_avg_pool3d(t(1, 2, 4, 4, 4), 2)
F.adaptive_max_pool1d(t(1, 2, 6), 3)
F.adaptive_max_pool2d(t(1, 2, 6, 6), (3, 2))
F.adaptive_max_pool3d(t(1, 2, 4, 4, 4), 2)
F.max_unpool1d(t(1, 2, 3), n(1, 2, 3), 2)
F.max_unpool2d(t(1, 2, 3, 3), n(1, 2, 3, 3), 2)
F.interpolate(t(1, 2, 4, 4), size=(8, 8), mode="bilinear", align_corners=False)
F.interpolate(t(1, 2, 4, 4), scale_factor=2.0, mode="nearest")
F.interpolate(t(1, 2, 4), size=8, mode="linear")
F.grid_sample(t(1, 2, 3, 3), t(1, 2, 2, 2), mode="bilinear", padding_mode="zeros", align_corners=False)
F.affine_grid(t(1, 2, 3), (1, 2, 3, 3), align_corners=False)
F.pad(t(1, 2, 5), (1, 1), mode="constant", value=0.5)
F.pad(t(1, 2, 5), (1, 1), mode="reflect")
F.pad(t(1, 2, 5, 5), (1, 1, 1, 1), mode="replicate")
F.pad(t(1, 2, 5), (1, 1), mode="circular")
F.pixel_shuffle(t(1, 4, 2, 2), 2)
F.pixel_unshuffle(t(1, 1, 4, 4), 2)
F.channel_shuffle(t(1, 4, 2, 2), 2)
F.softmax(t(2, 3), 1)
F.softmax(t(2, 3), dim=1, dtype=torch.float64)
F.log_softmax(t(2, 3), 1)
F.softmin(t(2, 3), 1)
F.gumbel_softmax(t(2, 3), 1.0, False, dim=1)
F.glu(t(2, 4), 1)
F.gelu(t(2, 3), approximate="tanh")
F.elu(t(2, 3), 1.0)
F.leaky_relu(t(2, 3), 0.1)
F.softplus(t(2, 3), 1.0, 20.0)
F.threshold(t(2, 3), 0.1, 0.5)
F.prelu(t(2, 3), t(3))
F.rrelu(t(2, 3), 0.1, 0.3, False)
F.hardtanh(t(2, 3), -1.0, 1.0)
F.dropout(t(2, 3), 0.5, True)
F.dropout1d(t(2, 3, 4), 0.5)
F.dropout2d(t(2, 3, 4, 4), 0.5)
F.dropout3d(t(2, 3, 4, 4, 4), 0.5)
F.alpha_dropout(t(2, 3), 0.5)
F.layer_norm(t(2, 3), (3,), t(3), t(3), 1e-5)
F.rms_norm(t(2, 3), (3,), t(3))
F.group_norm(t(2, 4, 3), 2, t(4), t(4), 1e-5)
F.batch_norm(t(2, 3, 4), t(3), t(3), t(3), t(3), True, 0.1, 1e-5)
F.instance_norm(t(2, 3, 4), t(3), t(3), t(3), t(3), True)
F.local_response_norm(t(2, 3, 4), 3, 1e-4, 0.75, 1.0)
F.normalize(t(2, 3), 2.0, 1)
F.embedding(n(2, 3), t(5, 4), padding_idx=1)
F.embedding_bag(n(2, 3), t(5, 4), mode="mean")
F.embedding_bag(n(6), t(5, 4), torch.tensor([0, 3]), mode="sum")
F.one_hot(n(2, 3), 4)
F.cosine_similarity(t(2, 3), t(2, 3), 1)
F.pairwise_distance(t(2, 3), t(2, 3), 2.0)
F.pdist(t(4, 3))
F.mse_loss(t(2, 3), t(2, 3), reduction="sum")
F.l1_loss(t(2, 3), t(2, 3), reduction="none")
F.smooth_l1_loss(t(2, 3), t(2, 3), beta=0.5)
F.huber_loss(t(2, 3), t(2, 3), delta=0.5)
F.cross_entropy(t(2, 3), n(2), t(3), ignore_index=-100, reduction="mean", label_smoothing=0.1)
F.cross_entropy(t(2, 3), t(2, 3))
F.cross_entropy(t(2, 3, 4), n(2, 4))
F.nll_loss(t(2, 3), n(2), t(3), reduction="sum")
F.binary_cross_entropy(t(2, 3), t(2, 3), t(3), reduction="sum")
F.binary_cross_entropy_with_logits(t(2, 3), t(2, 3), t(3), pos_weight=t(3))
F.kl_div(t(2, 3), t(2, 3), reduction="batchmean", log_target=True)
F.poisson_nll_loss(t(2, 3), t(2, 3), log_input=True)
F.gaussian_nll_loss(t(2, 3), t(2, 3), t(2, 3))
F.cosine_embedding_loss(t(2, 3), t(2, 3), t(2), 0.1)
F.margin_ranking_loss(t(2), t(2), t(2), 0.1)
F.triplet_margin_loss(t(2, 3), t(2, 3), t(2, 3), 1.0, 2.0)
F.multi_margin_loss(t(2, 3), n(2), 1, 1.0, t(3))
F.multilabel_margin_loss(t(2, 3), n(2, 3))
F.hinge_embedding_loss(t(2, 3), t(2, 3), 1.0)
F.scaled_dot_product_attention(t(1, 2, 3, 4), t(1, 2, 5, 4), t(1, 2, 5, 4), attn_mask=b(3, 5), dropout_p=0.1, is_causal=False)

nn.Linear(3, 4, bias=True, device="cpu", dtype=torch.float32)
nn.Linear(3, 4)(t(2, 3))
nn.Bilinear(3, 4, 5)(t(2, 3), t(2, 4))
nn.Conv1d(2, 3, 3, stride=1, padding=1)(t(1, 2, 5))
nn.Conv2d(2, 4, 3, stride=2, padding=1, dilation=1, groups=2, bias=True, padding_mode="zeros")(t(1, 2, 5, 5))
nn.Conv2d(2, 4, (3, 3), padding="same")
nn.Conv3d(2, 3, 3)(t(1, 2, 5, 5, 5))
nn.ConvTranspose1d(2, 3, 3)(t(1, 2, 5))
nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2)(t(1, 2, 5, 5))
nn.ConvTranspose3d(2, 3, 3)(t(1, 2, 3, 3, 3))
nn.BatchNorm1d(3, eps=1e-5, momentum=0.1, affine=True)(t(2, 3))
nn.BatchNorm2d(3)(t(2, 3, 4, 4))
nn.BatchNorm3d(3)(t(2, 3, 4, 4, 4))
nn.InstanceNorm1d(3, affine=True)(t(2, 3, 4))
nn.InstanceNorm2d(3)(t(2, 3, 4, 4))
nn.GroupNorm(2, 4)(t(2, 4, 3))
nn.LayerNorm(3, eps=1e-5)(t(2, 3))
nn.LayerNorm((2, 3))(t(2, 3))
nn.RMSNorm(3)(t(2, 3))
nn.LocalResponseNorm(3)(t(2, 3, 4))
nn.Dropout(0.5)(t(2, 3))
nn.Dropout2d(0.5)(t(2, 3, 4, 4))
nn.AlphaDropout(0.5)(t(2, 3))
nn.Embedding(5, 4, padding_idx=1)(n(2, 3))
nn.EmbeddingBag(5, 4, mode="sum")(n(2, 3))
nn.MaxPool1d(2, 2)(t(1, 2, 6))
nn.MaxPool2d(2, stride=2, padding=1)(t(1, 2, 6, 6))
nn.MaxPool3d(2)(t(1, 2, 4, 4, 4))
nn.AvgPool1d(2)(t(1, 2, 6))
nn.AvgPool2d(2, 2, 1)(t(1, 2, 6, 6))
nn.AvgPool3d(2)(t(1, 2, 4, 4, 4))
nn.LPPool2d(2, 2)(t(1, 2, 6, 6))
nn.AdaptiveAvgPool1d(3)(t(1, 2, 6))
nn.AdaptiveAvgPool2d((3, 2))(t(1, 2, 6, 6))
nn.AdaptiveMaxPool2d(2)(t(1, 2, 6, 6))
nn.MaxUnpool2d(2)(t(1, 2, 3, 3), n(1, 2, 3, 3))
nn.ConstantPad1d(1, 0.5)(t(1, 2, 5))
nn.ZeroPad2d((1, 1, 1, 1))(t(1, 2, 5, 5))
nn.ReflectionPad2d(1)(t(1, 2, 5, 5))
nn.ReplicationPad1d((1, 1))(t(1, 2, 5))
nn.CircularPad1d(1)(t(1, 2, 5))
nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)(t(1, 2, 4, 4))
nn.UpsamplingNearest2d(scale_factor=2)(t(1, 2, 4, 4))
nn.PixelShuffle(2)(t(1, 4, 2, 2))
nn.PixelUnshuffle(2)(t(1, 1, 4, 4))
nn.ChannelShuffle(2)(t(1, 4, 2, 2))
nn.Fold((5, 5), 3, padding=1)(t(1, 18, 25))
nn.Unfold(3, padding=1)(t(1, 2, 5, 5))
nn.Flatten(1, 2)(t(2, 3, 4))
nn.Unflatten(1, (2, 3))(t(2, 6))
nn.Softmax(1)(t(2, 3))
nn.LogSoftmax(1)(t(2, 3))
nn.Softmax2d()(t(2, 3, 4, 4))
nn.Softmin(1)(t(2, 3))
nn.PReLU(3)(t(2, 3))
nn.Threshold(0.1, 0.5)(t(2, 3))
nn.CosineSimilarity(1)(t(2, 3), t(2, 3))
nn.PairwiseDistance(2.0)(t(2, 3), t(2, 3))
nn.CrossEntropyLoss(t(3), reduction="sum", label_smoothing=0.1)(t(2, 3), n(2))
nn.NLLLoss()(t(2, 3), n(2))
nn.BCELoss(reduction="none")(t(2, 3), t(2, 3))
nn.GaussianNLLLoss()(t(2, 3), t(2, 3), t(2, 3))
nn.CosineEmbeddingLoss(0.1)(t(2, 3), t(2, 3), t(2))
nn.MarginRankingLoss(0.1)(t(2), t(2), t(2))
nn.TripletMarginLoss(1.0)(t(2, 3), t(2, 3), t(2, 3))
nn.MultiMarginLoss()(t(2, 3), n(2))
nn.MultiLabelMarginLoss()(t(2, 3), n(2, 3))
nn.HuberLoss(delta=0.5)(t(2, 3), t(2, 3))
nn.RNN(3, 4, num_layers=2, nonlinearity="tanh", dropout=0.1, bidirectional=True)(t(5, 2, 3))
nn.LSTM(3, 4, 1, batch_first=True)(t(2, 5, 3), (t(1, 2, 4), t(1, 2, 4)))
nn.GRU(3, 4)(t(5, 2, 3), t(1, 2, 4))
nn.RNNCell(3, 4)(t(2, 3), t(2, 4))
nn.LSTMCell(3, 4)(t(2, 3), (t(2, 4), t(2, 4)))
nn.GRUCell(3, 4)(t(2, 3), t(2, 4))
nn.MultiheadAttention(4, 2, dropout=0.1)(t(3, 2, 4), t(5, 2, 4), t(5, 2, 4))
nn.TransformerEncoderLayer(4, 2, 8)(t(3, 2, 4))
nn.TransformerDecoderLayer(4, 2, 8)(t(3, 2, 4), t(5, 2, 4))
nn.Transformer(4, 2, 1, 1, 8)(t(3, 2, 4), t(5, 2, 4))
nn.Sequential(nn.Linear(3, 4), nn.ReLU())(t(2, 3))
nn.ModuleList([nn.Linear(3, 4)]).append(nn.ReLU())
nn.ModuleDict({"a": nn.Linear(3, 4)})
nn.ParameterList([nn.Parameter(t(2))])
nn.Parameter(t(2, 3), requires_grad=True)
nn.Linear(3, 4).load_state_dict({"weight": t(4, 3), "bias": t(4)}, strict=True)
nn.Linear(3, 4).register_buffer("extra", t(3), True)
nn.Linear(3, 4).register_parameter("extra", nn.Parameter(t(3)))
nn.Linear(3, 4).add_module("extra", nn.ReLU())
nn.Linear(3, 4).to(torch.float64)
nn.Linear(3, 4).to("cpu")
nn.Linear(3, 4).train(True)
nn.Linear(3, 4).requires_grad_(True)
nn.Linear(3, 4).get_parameter("weight")
nn.Linear(3, 4).get_submodule("")
nn.Linear(3, 4).apply(id)
nn.init.uniform_(t(2, 3), 0.0, 1.0)
nn.init.normal_(t(2, 3), 0.0, 1.0)
nn.init.trunc_normal_(t(2, 3), 0.0, 1.0, -2.0, 2.0)
nn.init.constant_(t(2, 3), 0.5)
nn.init.eye_(t(3, 3))
nn.init.dirac_(t(3, 3, 3))
nn.init.xavier_uniform_(t(2, 3), 1.0)
nn.init.xavier_normal_(t(2, 3), 1.0)
nn.init.kaiming_uniform_(t(2, 3), 0.1, "fan_in", "leaky_relu")
nn.init.kaiming_normal_(t(2, 3), mode="fan_out", nonlinearity="relu")
nn.init.orthogonal_(t(3, 3), 1.0)
nn.init.sparse_(t(3, 3), 0.5, 0.01)
nn.init.calculate_gain("leaky_relu", 0.1)
nn.utils.clip_grad_norm_(params(), 1.0, 2.0)
nn.utils.get_total_norm([t(2)], 2.0)
nn.utils.parameters_to_vector(params())
nn.utils.vector_to_parameters(t(6), params())
nn.utils.weight_norm(nn.Linear(3, 4), "weight", 0)
nn.utils.spectral_norm(nn.Linear(3, 4), "weight", 1)
nn.utils.rnn.pad_sequence([t(2, 3), t(4, 3)], True, 0.5)
nn.utils.rnn.pack_padded_sequence(t(4, 2, 3), torch.tensor([4, 2]), False, True)
nn.utils.rnn.pack_sequence([t(4, 3), t(2, 3)])

torch.optim.SGD(params(), lr=0.1, momentum=0.9, dampening=0.0, weight_decay=0.1, nesterov=True)
torch.optim.Adam(params(), lr=0.1, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
torch.optim.AdamW(params(), 0.1, (0.9, 0.99), 1e-8, 0.1)
torch.optim.Adagrad(params(), lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.1)
torch.optim.RMSprop(params(), lr=0.1, alpha=0.9, eps=1e-8, momentum=0.9)
torch.optim.Adadelta(params(), lr=0.1, rho=0.9, eps=1e-8)
torch.optim.Adamax(params(), lr=0.1, betas=(0.9, 0.99))
torch.optim.NAdam(params(), lr=0.1, momentum_decay=0.01)
torch.optim.RAdam(params(), lr=0.1, betas=(0.9, 0.99))
torch.optim.Rprop(params(), lr=0.1, etas=(0.5, 1.2), step_sizes=(1e-6, 50))
torch.optim.LBFGS(params(), lr=0.1, max_iter=5)
torch.optim.SGD([{"params": params()}], lr=0.1).add_param_group({"params": params(), "lr": 0.1})
torch.optim.SGD(params(), lr=0.1).load_state_dict(torch.optim.SGD(params(), lr=0.1).state_dict())
torch.optim.SGD(params(), lr=0.1).zero_grad(True)
torch.optim.lr_scheduler.StepLR(sgd(), 3, 0.1)
torch.optim.lr_scheduler.MultiStepLR(sgd(), [3, 5], 0.1)
torch.optim.lr_scheduler.ExponentialLR(sgd(), 0.9)
torch.optim.lr_scheduler.CosineAnnealingLR(sgd(), 10, 0.01)
torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd(), 5, 2)
torch.optim.lr_scheduler.LambdaLR(sgd(), float)
torch.optim.lr_scheduler.LinearLR(sgd(), 0.5, 1.0, 5)
torch.optim.lr_scheduler.ConstantLR(sgd(), 0.5, 5)
torch.optim.lr_scheduler.PolynomialLR(sgd(), 5, 1.0)
torch.optim.lr_scheduler.OneCycleLR(sgd(), max_lr=0.1, total_steps=10, pct_start=0.3, anneal_strategy="cos")
torch.optim.lr_scheduler.ReduceLROnPlateau(sgd(), mode="min", factor=0.1, patience=3, threshold_mode="rel")

torch.linalg.norm(t(2, 3), 2, (0, 1), True)
torch.linalg.vector_norm(t(2, 3), 2, 1)
torch.linalg.matrix_norm(t(2, 3), "fro", (-2, -1))
torch.linalg.det(t(3, 3))
torch.linalg.inv(spd(3))
torch.linalg.solve(spd(3), t(3, 2))
torch.linalg.solve_triangular(spd(3), t(3, 2), upper=True)
torch.linalg.cholesky(spd(3))
torch.linalg.qr(t(3, 2), "reduced")
torch.linalg.svd(t(3, 2), False)
torch.linalg.svdvals(t(3, 2))
torch.linalg.eigh(spd(3), "L")
torch.linalg.eigvalsh(spd(3))
torch.linalg.lstsq(t(3, 2), t(3, 2))
torch.linalg.pinv(t(3, 2))
torch.linalg.matrix_rank(t(3, 2))
torch.linalg.matrix_power(t(3, 3), 2)
torch.linalg.matrix_exp(t(3, 3))
torch.linalg.multi_dot([t(2, 3), t(3, 4), t(4, 2)])
torch.linalg.cross(t(2, 3), t(2, 3), dim=-1)
torch.linalg.slogdet(t(3, 3))
torch.linalg.cond(spd(3))
torch.linalg.vecdot(t(2, 3), t(2, 3))
torch.linalg.vander(t(3))
torch.linalg.diagonal(t(3, 3))
torch.special.logit(t(2, 3), 0.1)
torch.special.xlog1py(t(2, 3), t(3))
torch.special.softmax(t(2, 3), 1)
torch.special.ndtr(t(2, 3))

torch.autograd.grad(leaf(2).sum(), leaf(2), allow_unused=True)
torch.autograd.backward(leaf(2).sum())
torch.autograd.backward(leaf(2) * 2, t(2))
leaf(2).sum().backward()
(leaf(2) * 2).backward(t(2))
torch.autograd.functional.jacobian(torch.exp, t(2))
torch.utils.data.DataLoader([1, 2, 3], batch_size=2, shuffle=True, num_workers=0, drop_last=False)
torch.utils.data.TensorDataset(t(4, 2), n(4))
torch.utils.data.random_split([1, 2, 3], [1, 2])
torch.utils.data.Subset([1, 2, 3], [0, 1])[1]
torch.utils.data.RandomSampler([1, 2, 3], replacement=True, num_samples=2)
torch.utils.data.WeightedRandomSampler([0.5, 0.5], 2, True)
torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler([1, 2, 3]), 2, True)
torch.utils.data.default_collate([t(2), t(2)])
torch.distributions.Normal(t(2), t(2) + 1).log_prob(t(2))
torch.distributions.Normal(0.0, 1.0).sample((2,))
torch.distributions.Bernoulli(t(2)).log_prob(b(2).float())
torch.distributions.Bernoulli(probs=0.5)
torch.distributions.Categorical(t(2, 3)).log_prob(n(2))
torch.distributions.Categorical(logits=t(2, 3))
torch.utils.checkpoint.checkpoint(torch.exp, leaf(2), use_reentrant=False)
"""


def valid() -> list[str]:
    calls = [line for line in VALID.splitlines() if line]
    calls += [f"torch.{name}(t(3, 3))" for name in UNARY.split()] + [f"torch.{name}(t(2, 3), t(3))" for name in BINARY.split()]
    calls += [f"t(3, 3).{name}()" for name in UNARY.split()[:44]]
    calls += [f"F.{name}(t(2, 3))" for name in ACTIVATIONS.split()] + [f"F.{name}(t(2, 3), t(2, 3))" for name in LOSSES.split()]
    calls += [f"nn.{name}()(t(2, 4))" for name in MODULES.split()] + [f"nn.{name}()(t(2, 3), t(2, 3))" for name in LOSS_MODULES.split()]
    return calls


# -- spoiling ----------------------------------------------------------------------------------------------------

HELPERS = {"t", "n", "b", "spd", "leaf", "params", "sgd"}
BIG = str(2**63)


def of_tensor(node: ast.Call) -> list[str]:
    """Other things than this tensor: no tensor, or one of another dtype or shape."""
    name, sizes = node.func.id, [a.value for a in node.args]
    dtypes = {"t": [f"n({node_args(sizes)})", f"b({node_args(sizes)})", f"t({node_args(sizes)}).double()", f"t({node_args(sizes)}).half()"],
              "n": [f"t({node_args(sizes)})", f"b({node_args(sizes)})", f"n({node_args(sizes)}) + 1000", f"n({node_args(sizes)}) - 1000"],
              "b": [f"t({node_args(sizes)})", f"n({node_args(sizes)})"]}.get(name, [])
    if name in ("params", "sgd"):
        return ["None", "5", "'x'", "[]", "object()", "t(2)", "[None]", "[t(2)]", "[{'params': 5}]", "{}"]
    shapes = [[*sizes, 1], sizes[:-1], [s + 3 for s in sizes], [7, *sizes], [*sizes[:-1], sizes[-1] + 1], [sizes[0] + 2, *sizes[1:]], [0, *sizes[1:]], []] if name != "spd" else [[4]]
    return ["None", "'x'", "object()", "1.5", "[0.5, 'x']", "{}", *dtypes, *[f"{name}({node_args(s)})" for s in shapes if s or name != "spd"],
            *(["t(2, 3)", "-spd(3)", "n(3, 3)", "t(3, 3).half()"] if name == "spd" else []), *([f"t({node_args(sizes)}) * 5", f"-t({node_args(sizes)})"] if name == "t" else [])]


def node_args(sizes: list) -> str:
    return ", ".join(map(str, sizes))


def of_constant(value: Any) -> list[str]:
    if isinstance(value, bool):
        return ["None", "'x'", "object()", "[]", "t(2)", "2.5"]
    if isinstance(value, int):
        return ["None", "'x'", "object()", "2.5", "-100", "-1", "0", "100", BIG, "[]", "[1, 'x']", "t(2)", "1j"]
    if isinstance(value, float):
        return ["None", "'x'", "object()", "-1.0", "5.0", "[]", "t(2)", "float('nan')", "1j", "{}"]
    if isinstance(value, str):
        return ["None", "'nonsense'", "5", "object()", "''", "t(2)", "b'x'", "[]"]
    return ["'x'", "5", "object()"]


def spoilt(node: ast.expr) -> list[str]:
    """What stands in for an argument, as text."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HELPERS:
        return of_tensor(node)
    if isinstance(node, ast.UnaryOp):
        return of_constant(node.operand.value) if isinstance(node.operand, ast.Constant) else []
    if isinstance(node, ast.Constant):
        return of_constant(node.value)
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = [ast.unparse(e) for e in node.elts]
        opened, closed = "[]" if isinstance(node, ast.List) else "()"
        swaps = [[*parts[:i], s, *parts[i + 1:]] for i, e in enumerate(node.elts[:2]) for s in spoilt(e)[:12]]
        return ["None", "'x'", "object()", "()", "5", "1.5", *[f"{opened}{', '.join(p)},{closed}" for p in [parts[:-1], [*parts, parts[-1] if parts else "1"], *swaps] if p]]
    if isinstance(node, ast.Attribute):  # a dtype
        return ["'float32'", "5", "object()", "torch", "'x'", "float", "t(2)"]
    if isinstance(node, ast.Dict):
        return ["None", "5", "[]", "{}", "{'x': 1}", "[1, 2]"]
    if isinstance(node, ast.Slice):
        return []
    return ["None", "5", "'x'", "object()", "t(2)"]


def spoil(text: str) -> Iterator[str]:
    """The call with one argument of one of its calls spoilt, but for those that torch would work at for ever: 2^63 layers."""
    layers = text.startswith(("nn.RNN(", "nn.LSTM(", "nn.GRU(", "nn.Transformer"))
    for spoilt_text in _spoil(text):
        if not (layers and BIG in spoilt_text):
            yield spoilt_text


def _spoil(text: str) -> Iterator[str]:
    tree = ast.parse(text, mode="eval")
    for call in [node for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Subscript))]:
        if isinstance(call, ast.Subscript):
            yield from _replaced(tree, call, "slice", ["object()", "'x'", "1.5", "100", "-100", "t(2)", "b(5)", "n(2) + 50", "(0, 0, 0)", "(None, 9)", "[1.5]", "slice('x')", "slice(None, None, -1)",
                                                      "slice(None, None, 0)", "{}", BIG, "(b(7, 7),)", "(object(), 0)", "(..., 0, ...)"])
            continue
        if isinstance(call.func, ast.Name):  # a helper
            continue
        for i, arg in enumerate(call.args):
            whole = list(call.args)
            for other in spoilt(arg):
                call.args = [*whole[:i], ast.parse(other, mode="eval").body, *whole[i + 1:]]
                yield ast.unparse(tree)
            call.args = whole
        for keyword in call.keywords:
            yield from _replaced(tree, keyword, "value", spoilt(keyword.value))
        args, keywords = list(call.args), list(call.keywords)
        if args:
            call.args = args[:-1]  # one is missing
            yield ast.unparse(tree)
        call.args = [*args, *[ast.Constant(value="surplus")] * 9]
        yield ast.unparse(tree)
        call.args, call.keywords = args, [*keywords, ast.keyword(arg="nonsense", value=ast.Constant(value=1))]
        yield ast.unparse(tree)
        call.keywords = keywords


def _replaced(tree: Any, owner: Any, field: str, texts: list[str]) -> Iterator[str]:
    was = getattr(owner, field)
    for text in texts:
        setattr(owner, field, ast.parse(text, mode="eval").body)
        yield ast.unparse(tree)
    setattr(owner, field, was)


# -- running -----------------------------------------------------------------------------------------------------


def world(lib: Any) -> dict:
    """What the texts speak of, in one of the libraries."""
    def numbers(*sizes: int) -> int:
        count = 1
        for s in sizes:
            count *= s
        return count

    def t(*sizes: int) -> Any:
        k = numbers(*sizes)
        return ((lib.arange(k).float() + 0.5) / max(k, 1)).reshape(sizes)

    def n(*sizes: int) -> Any:
        return (lib.arange(numbers(*sizes)) % 2).reshape(sizes)

    def spd(k: int) -> Any:
        return lib.eye(k) * 3 + t(k, k) * 0.1 + t(k, k).T * 0.1

    def params() -> list:
        return [lib.nn.Parameter(t(2, 3))]

    return {"torch": lib, "nn": lib.nn, "F": lib.nn.functional, "t": t, "n": n, "b": lambda *s: n(*s).bool(), "spd": spd, "leaf": lambda *s: t(*s).requires_grad_(), "params": params,
            "sgd": lambda: lib.optim.SGD(params(), lr=0.1)}


def said(text: str, names: dict) -> Any:
    """The exception of a call, or None. What a call changes for the process is put back."""
    lib = names["torch"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(text, dict(names))
    except Exception as error:
        return error
    finally:
        if "set_" in text:
            lib.set_default_dtype(lib.float32)
            lib.set_grad_enabled(True)
            lib.set_num_threads(2)
    return None


def same_kind(mine: Exception, theirs: Exception) -> bool:
    """Whether who catches torch's type catches ours. torch's own types stand under the same name."""
    wanted = [c.__name__ for c in type(theirs).__mro__]
    return isinstance(mine, type(theirs)) or (type(theirs).__module__.startswith("torch") and type(mine).__name__ == wanted[0].lstrip("_"))


TRACE = False


def compare(word: str = "") -> tuple[list, list, int]:
    """Calls that ampc accepts, those with another type of exception (each with both answers), and how many are wrong for torch."""
    import torch

    import ampc

    theirs, ours = world(torch), world(ampc)
    accepted, other, count, seen = [], [], 0, set()
    for good in valid():
        if word not in good:
            continue
        assert said(good, theirs) is None, (good, said(good, theirs))
        for text in spoil(good):
            if text in seen:
                continue
            seen.add(text)
            want = said(text, theirs)
            if want is None or type(want) is SyntaxError:
                continue
            count += 1
            if TRACE:
                print(f"TRY {text}", flush=True)
            got = said(text, ours)
            if got is None:
                accepted.append((text, want))
            elif not same_kind(got, want):
                other.append((text, want, got))
    return accepted, other, count


def main(word: str = "") -> None:
    accepted, other, count = compare(word)
    for text, want in accepted:
        print(f"ACCEPTED {text}   torch: {type(want).__name__}: {str(want).splitlines()[0] if str(want) else ''}"[:260])
    for text, want, got in other:
        print(f"OTHER {text}   torch: {type(want).__name__}: {(str(want).splitlines() or [''])[0][:90]}   ampc: {type(got).__name__}: {(str(got).splitlines() or [''])[0][:90]}")
    print(f"{count} wrong calls: {len(accepted)} accepted, {len(other)} of another type, {100 * (1 - (len(accepted) + len(other)) / max(count, 1)):.2f} % alike")


if __name__ == "__main__":
    main(*sys.argv[1:])
