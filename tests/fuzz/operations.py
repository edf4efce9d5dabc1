"""The lines that programs are made of.

A template is one line with places in braces, which `drawing.Writer` fills: its methods have their names. A line that gives
something begins with `{new} = `, which is written for those that have no ` = ` or `!` of their own."""

from __future__ import annotations

from typing import Dict, List, Tuple

# Not sgn, whose gradient has no memory in torch.
UNARY = ["neg", "abs", "sign", "square", "floor", "ceil", "round", "trunc", "exp", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "atan",
         "sinh", "cosh", "asinh", "exp2", "expm1", "log1p", "erf", "erfc", "tanh", "sigmoid", "relu", "frac", "log", "log2", "log10", "asin",
         "acos", "acosh", "atanh", "erfinv", "sinc", "deg2rad", "positive"]
ONLY_NEW = ["signbit", "isnan", "isinf", "isfinite", "logical_not", "isposinf", "isneginf", "isreal"]
BINARY = ["add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "fmod", "copysign", "xlogy", "true_divide"]
BINARY_NEW = ["eq", "ne", "lt", "le", "gt", "ge", "rsub", "float_power"]
OF_TENSORS = ["atan2", "hypot", "maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "logical_xor", "logaddexp", "heaviside", "isclose"]
COMPARE_IN_PLACE = ["eq", "ne", "lt", "le", "gt", "ge"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SPECIAL = ["lgamma", "digamma", "i0", "special.i0e", "special.i1", "special.i1e", "special.ndtr", "special.log_ndtr", "special.ndtri", "special.entr", "special.erfcx", "special.bessel_j0", "special.bessel_j1",
           "special.modified_bessel_k0", "special.expit"]
ACTIVATIONS = ["relu", "silu", "mish", "softsign", "hardswish", "hardsigmoid", "logsigmoid", "gelu", "elu", "selu", "celu", "leaky_relu", "hardtanh", "relu6", "softplus", "hardshrink", "softshrink", "tanhshrink"]


def each(names: List[str], *templates: str) -> List[str]:
    return [t.replace("NAME", name) for name in names for t in templates]


# group -> (how often, its templates)
TEMPLATES: Dict[str, Tuple[float, List[str]]] = {
    "unary": (8, each(UNARY, "torch.NAME({x})", "{x}.NAME()") + each(ONLY_NEW, "torch.NAME({x})")),
    "binary": (12, each(BINARY, "torch.NAME({x}, {y})", "{x}.NAME({y})") + each(BINARY_NEW, "torch.NAME({x}, {y})") + each(OF_TENSORS, "torch.NAME({x}, {ty})") + each(BITS, "torch.NAME({z}, {y})")),
    "operators": (8, ["{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / {y}", "{x} @ {right}", "{n} - {x}", "{n} / {x}", "{x} ** {power}", "{x} % {y}",
                      "{x} // {y}", "-{x}", "{x} == {y}", "{x} < {y}", "{x} >= {n}", "~{m}", "{m} & {m}", "{x} + {x}", "{x} * {x}", "abs({x})",
                      "{n} ** {x}", "{z} << 1", "{x} != {x}"]),
    "activations": (3, each(ACTIVATIONS, "torch.nn.functional.NAME({f})") + ["torch.nn.functional.gelu({f}, approximate='tanh')",
                    "torch.nn.functional.leaky_relu({f}, {p})", "torch.nn.functional.elu({f}, {p})", "torch.nn.functional.softplus({f}, {p})",
                    "torch.nn.functional.threshold({f}, 0.5, 2.0)", "torch.nn.functional.hardtanh({f}, -0.5, 0.5)", "torch.nn.functional.glu({f}, {d})",
                    "torch.nn.functional.dropout({f}, 0.0)", "torch.nn.functional.dropout({f}, 0.5, training=False)"]),
    "ternary": (3, ["torch.addcmul({x}, {ty}, {ty}, value={n})", "torch.addcdiv({f}, {ty}, {ty}, value={n})", "torch.lerp({f}, {like}, {p})",
                    "torch.lerp({f}, {like}, {like})", "torch.where({m}, {like}, {like})", "torch.where({x} > 0, {like}, {y})", "torch.where({x} > 0, {y}, {n})",
                    "torch.clamp({x}, {n}, {n})", "torch.clamp({x}, min={n})", "torch.clamp({x}, max={ty})", "{x}.clamp(min={ty}, max={ty})",
                    "torch.add({x}, {y}, alpha={n})", "torch.sub({x}, {y}, alpha={n})", "torch.div({x}, {y}, rounding_mode={rounding})",
                    "torch.nan_to_num({f})", "torch.nan_to_num({f}, {n}, {n}, {n})", "torch.logit({f}, 0.1)"]),
    "views": (16, ["{x}.t()", "{x}.transpose({d}, {d})", "{r}.view({shape})", "{r}.view(-1)", "{r}.view_as({like})", "{x}[{index}]", "{x}[{index}]", "{x}.select({d}, {at})",
                   "{x}.narrow({d}, {k}, {k})", "{x}.unsqueeze({d1})", "{x}.squeeze()", "{x}.squeeze({d})", "{x}.expand({bigger})", "{x}.expand_as({ty})",
                   "{x}.permute({perm})", "torch.permute({x}, ({perm}))", "{x}.movedim({d}, {d})", "{x}.swapaxes({d}, {d})", "{matrix}.diagonal()", "{matrix}.diagonal({offset}, {d}, {d})",
                   "{r}.flatten()", "{r}.flatten({d}, {d})", "{x}.unflatten({d}, (-1, 1))", "{x}.unfold({d}, {k}, {p1})", "{x}.T", "{matrix}.mT", "{x}.detach()", "{x}.data",
                   "{r}.reshape({shape})", "{r}.reshape(-1)", "{r}.ravel()", "{r}.contiguous()", "{x}.broadcast_to({bigger})",
                   "{r}.as_strided({strided})", "{new}, {new} = {x}.chunk(2, {d})", "{new}, {new} = {x}.split(1, {d})", "{new} = {x}.split({k}, {d})",
                   "{new} = {x}.unbind({d})", "{new}, *{new} = {x}.unbind()", "{new} = {x}.tensor_split(2, {d})", "{new} = torch.broadcast_tensors({x}, {ty})",
                   "{x}[..., None]", "{x}[None]", "torch.atleast_2d({x})", "{matrix}.adjoint()", "{x}.real", "{x}.positive()", "{x}.requires_grad_({b}).view(-1)",
                   "{x}.view({T})", "{new}, {new} = torch.meshgrid({x}, {x}, indexing='ij')", "{x}[:]"]),
    "copies": (4, ["{x}.clone()", "{x}.detach().clone()", "{c}.to({cT})", "{c}.to({cT}, copy=True)", "{c}.to({cx}.dtype)", "{c}.type_as({cx})", "{x}.float()", "{x}.double()", "{x}.half()", "{x}.bfloat16()",
                   "{x}.bool()", "{c}.long()", "{x}.repeat({k}, {k})", "{x}.repeat(2)", "{x}.tile((2,))", "{x}.flip(({d},))", "{x}.roll({i}, {d})", "{x}.roll({i})",
                   "{matrix}.rot90()", "{matrix}.tril({i})", "{matrix}.triu({i})", "{x}.diag()", "torch.diag_embed({x})", "torch.zeros_like({x})", "torch.ones_like({x}, requires_grad=False)",
                   "torch.full_like({x}, {k})", "{x}.new_zeros({size})", "{x}.new_full({size}, {k})", "{x}.new_tensor([1, 2])", "torch.tensor({x}.tolist())", "torch.as_tensor({x})",
                   "torch.asarray({x})", "{x}.sum_to_size({x}.shape[1:])", "{x}.repeat_interleave(2)", "{x}.repeat_interleave({k}, {d})", "{x}.clone(memory_format=torch.contiguous_format)"]),
    "joins": (5, ["torch.cat([{x}, {like}], {d})", "torch.cat([{x}, {x}, {ty}])", "torch.stack([{x}, {like}], {d1})", "torch.hstack([{x}, {like}])", "torch.vstack([{x}, {ty}])",
                  "torch.dstack([{x}, {like}])", "torch.column_stack([{x}, {like}])", "torch.block_diag({x}, {ty})", "torch.cat(({x},))", "torch.cat([{x}, {any}], {d})",
                  "torch.cartesian_prod({x}, {x})"]),
    "reductions": (10, ["{x}.sum()", "{x}.sum({d})", "{x}.sum({d}, keepdim={b})", "{x}.sum(dtype={cT})", "{x}.mean()", "{x}.mean({d}, keepdim={b})", "{x}.mean(({d}, {d}))", "{x}.sum(({d}, {d}))",
                        "{x}.prod()", "{x}.prod({d})", "{x}.amax({d})", "{x}.amin({d}, keepdim={b})", "{x}.amax()", "{x}.max()", "{x}.min()", "{new}, {new} = {u}.max({d})",
                        "{new}, {new} = {u}.min({d}, keepdim={b})", "{u}.argmax()", "{u}.argmin({d})", "{x}.var()", "{x}.var({d}, unbiased={b})", "{x}.std({d})", "{x}.std(correction=0)",
                        "{new}, {new} = torch.var_mean({f}, {d})", "{x}.norm()", "{x}.norm({p}, {d})", "{x}.norm(float('inf'))", "torch.linalg.vector_norm({f}, {p}, {d})",
                        "{x}.logsumexp({d})", "{x}.all()", "{x}.any({d})", "{x}.count_nonzero()", "{x}.count_nonzero({d})", "{x}.nansum()", "{x}.nanmean({d})", "{new}, {new} = {u}.aminmax(dim={d})",
                        "{u}.median()", "{new}, {new} = {u}.median({d})", "{new}, {new} = {u}.kthvalue(1, {d})", "{u}.quantile(0.5)", "torch.dist({f}, {like})", "{matrix}.trace()",
                        "{x}.allclose({like})", "{x}.equal({like})", "torch.cdist({x}, {x})", "torch.cosine_similarity({x}, {like}, {d})"]),
    "scans": (2, ["{x}.cumsum({d})", "{x}.cumprod({d})", "{f}.logcumsumexp({d})", "{new}, {new} = {u}.cummax({d})", "{x}.diff()", "{x}.cumsum({d}, dtype={cT})", "torch.trapezoid({f})"]),
    "order": (3, ["{new}, {new} = {u}.sort({d})", "{new}, {new} = {u}.sort({d}, descending=True)", "{u}.argsort()", "{new}, {new} = {u}.topk(1)", "{new}, {new} = {u}.topk({k}, {d})",
                  "{u}.unique()", "{new}, {new} = {x}.unique(return_counts=True)", "{new}, {new} = {x}.sort(dim={d}, stable=True)", "torch.nonzero({x})", "{new} = torch.nonzero({x}, as_tuple=True)",
                  "{x}.argwhere()", "torch.bucketize({x}, torch.tensor([-1.0, 0.0, 1.0]))", "torch.isin({x}, {any})", "torch.msort({u})", "{x}.unique_consecutive()"]),
    "products": (6, ["{matrix}.matmul({right})", "torch.mm({matrix}, {right})", "torch.matmul({matrix}, {last}.mT)", "torch.bmm({batch}, {right})", "torch.mv({matrix}, {any})", "torch.dot({vector}, {like})",
                     "torch.outer({vector}, {any})", "torch.addmm({any}, {matrix}, {right}, beta={n}, alpha={n})", "torch.einsum('ij,kj->ik', {matrix}, {like})", "torch.einsum('...i->...', {x})",
                     "torch.tensordot({x}, {like}, {x}.dim())", "torch.nn.functional.linear({matrix}, {like})", "torch.nn.functional.linear({f}, {like}, {any})", "torch.inner({x}, {like})",
                     "torch.baddbmm({any}, {batch}, {right})", "torch.kron({x}, {like})", "torch.linalg.multi_dot([{matrix}, {matrix}])", "torch.cross({x}, {like}, dim={d})", "torch.linalg.matrix_norm({matrix})",
                     "torch.addmv({any}, {matrix}, {any})", "torch.addr({any}, {any}, {any})", "torch.vdot({vector}, {like})", "torch.ger({vector}, {vector})"]),
    "normal": (5, ["{f}.softmax({d})", "{x}.softmax({d}, dtype=torch.float64)", "{f}.log_softmax({d})", "torch.nn.functional.layer_norm({f}, {f}.shape[-1:])", "torch.nn.functional.normalize({f}, dim={d})",
                   "torch.nn.functional.softmin({f}, {d})", "torch.nn.functional.mse_loss({f}, {like})", "torch.nn.functional.l1_loss({f}, {like}, reduction={reduction})",
                   "torch.nn.functional.smooth_l1_loss({f}, {like})", "torch.nn.functional.huber_loss({f}, {like})", "torch.nn.functional.binary_cross_entropy_with_logits({f}, {like})",
                   "torch.nn.functional.kl_div({f}, {like}, reduction='sum')", "torch.nn.functional.cross_entropy({f}, {like})", "torch.nn.functional.binary_cross_entropy({f}.sigmoid(), {like}.sigmoid())",
                   "torch.nn.functional.pad({x}, ({i}, {k}))", "torch.nn.functional.pad({x}, (1, 0), value={n})", "torch.nn.functional.rms_norm({f}, {f}.shape[-1:])",
                   "torch.nn.functional.cross_entropy({f}, torch.zeros({f}.shape[:1], dtype=torch.int64), reduction={reduction})", "torch.nn.functional.cosine_embedding_loss({f}, {like}, torch.ones(()))",
                   "torch.nn.functional.nll_loss({f}, torch.zeros({f}.shape[:1], dtype=torch.int64))", "torch.nn.functional.one_hot({small})", "torch.renorm({f}, 2, {d}, 1.0)",
                   "torch.nn.functional.scaled_dot_product_attention({f}, {like}, {like})", "torch.nn.functional.embedding(torch.tensor([0, 0, 1]), {f})",
                   "torch.nn.functional.avg_pool1d({f}, 2)", "torch.nn.functional.max_pool1d({f}, 1)", "torch.nn.functional.conv1d({f}, {any})", "torch.nn.functional.prelu({f}, {any})"]),
    "indexing": (7, ["{x}.index_select({d}, {rows})", "{x}[{rows}]", "{x}[{mask}]", "{x}[{rows}, {rows}]", "{x}.masked_fill({mask}, {n})", "{x}.masked_select({mask})", "{x}.gather({d}, {places})",
                     "{x}.take(torch.tensor([0, -1]))", "{x}.scatter({d}, {places}, {n})", "{x}.scatter_add({d}, {places}, {x})", "{x}.index_add({d}, {rows}, {x}.index_select({d0}, {rows0}))",
                     "{x}.masked_scatter({mask}, {x})", "{x}.index_put(({rows},), {num})", "{x}.index_put(({rows},), {num}, accumulate=True)", "{x}.take_along_dim({places})",
                     "{x}.select_scatter({ty}, {d}, {at})", "{x}.slice_scatter({x}[:1], 0, 0, 1)", "{matrix}.diagonal_scatter({last}.diagonal())", "{x}.scatter_reduce({d}, {places}, {x}, reduce='sum')",
                     "{x}[{index}, {rows}]", "{x}[..., {rows}]", "torch.where({mask})[0]"]),
    "writes": (20, each([n for n in UNARY if n != "positive"], "!{x}.NAME_()") + each(BINARY, "!{x}.NAME_({y})") * 2 + each(COMPARE_IN_PLACE, "!{x}.NAME_({y})") + each(["atan2", "hypot", "logical_and", "logical_or"], "!{x}.NAME_({ty})")
               + ["!{x} += {y}", "!{x} -= {y}", "!{x} *= {y}", "!{x} /= {y}", "!{x}.zero_()", "!{x}.fill_({n})", "!{x}.fill_({any})", "!{x}.copy_({y})", "!{x}.copy_({x})", "!{x}[{index}] = {n}",
                  "!{x}[{index}] = {y}", "!{x}[{index}] += {n}", "!{x}[{mask}] = {n}", "!{x}[{rows}] = {num}", "!{x}[{index}].mul_({n})", "!{x}.masked_fill_({mask}, {n})", "!{x}.clamp_({n}, {n})",
                  "!{x}.index_fill_({d}, {rows}, {num})", "!{x}.index_add_({d}, {rows}, {x}.index_select({d0}, {rows0}))", "!{x}.scatter_({d}, {places}, {num})", "!{x}.add_({y}, alpha={n})",
                  "!{x}.addcmul_({ty}, {ty}, value={n})", "!{x}.lerp_({like}, {p})", "!{x}.t_()", "!{x}.transpose_({d}, {d})", "!{x}.unsqueeze_({d1})", "!{x}.squeeze_()", "!{x}.tril_()", "!{x}.fill_diagonal_({num})",
                  "!{x}.index_put_(({rows},), {num})", "!{x}.index_copy_({d}, {rows}, {x}.index_select({d0}, {rows0}).clone())", "!{x}.swapaxes_({d}, {d})", "!{x}.cumsum_({d})", "!{x}.relu_()", "!torch.nn.functional.relu({x}, inplace=True)",
                  "!torch.relu_({x})", "!{x}.data.add_(1)", "!{x}.data.fill_({num})", "!{x}.detach().mul_(2)", "!{x}.set_({x})", "!{x}.data = {like}.clone()", "!{x}.requires_grad_({b})", "!{x}.detach_()",
                  "!torch.nn.functional.silu({f}, inplace=True)", "!torch.nn.functional.leaky_relu({f}, inplace=True)", "!torch.nn.init.constant_({x}, {num})", "!{x}.sub_({x})", "!{x}.mul_({x}.t())",
                  "!{x}.T.add_({ty})", "!{matrix}.diagonal().add_(1)", "!{x}.view(-1)[0].fill_(1)", "!{x}.addmm_({any}, {any})", "!{x}.nan_to_num_()"]),
    "out": (5, each(["add", "mul", "sub", "div", "maximum", "pow"], "!torch.NAME({x}, {ty}, out={into})") + each(["exp", "neg", "sin", "abs", "sqrt"], "!torch.NAME({x}, out={into})")
            + ["!torch.add({x}, {y}, out={x})", "!torch.mul({x}, 2, out={x})", "!torch.mm({x}, {right}, out={into})", "!torch.matmul({x}, {right}, out={into})", "!torch.sum({x}, {d}, out={into})",
               "!torch.cat([{x}, {like}], out={into})", "!torch.stack([{x}, {like}], out={into})", "!torch.cumsum({x}, {d}, out={x})", "!torch.eq({x}, {y}, out={into})", "!torch.where({m}, {like}, {like}, out={into})",
               "!torch.index_select({x}, {d}, {rows}, out={into})", "!torch.clamp({x}, {n}, {n}, out={into})", "!torch.add({x}, {x}[..., :1], out={x})", "!torch.mean({f}, {d}, out={into})"]),
    "backward": (14, ["!{g}.sum().backward()", "!{g}.sum().backward()", "!{g}.backward(torch.ones_like({g0}))", "!{g}.sum().backward(retain_graph=True)", "!{g}.mean().backward()", "!{g}.backward()",
                      "!({g} * {like}).sum().backward()", "!{g}.sum().backward(inputs=[{leaf}])", "{new}, = torch.autograd.grad({g}.sum(), {leaf})", "{new} = torch.autograd.grad({g}.sum(), [{leaf}, {g}], allow_unused=True)",
                      "{new}, = torch.autograd.grad({g}.sum(), {leaf}, create_graph=True)", "{new}, = torch.autograd.grad({g}.pow(2).sum(), {leaf}, create_graph=True, allow_unused=True)",
                      "{new}, = torch.autograd.grad({g}, {leaf}, torch.ones_like({g0}), retain_graph=True)", "!{g}.square().sum().backward(create_graph=True)", "!torch.autograd.backward([{g}.sum(), {g}.sum()])",
                      "{new} = torch.autograd.grad({g}.sum(), [{leaf}], materialize_grads=True, allow_unused=True)", "!{g}.backward({like})", "{new}, = torch.autograd.grad({g}.sum(), {g})"]),
    "gradients": (5, ["!{leaf}.grad = None", "!{leaf}.grad.zero_()", "!{leaf}.grad.mul_(2)", "{leaf}.grad", "!{leaf}.grad = {like}.detach()", "!{g}.retain_grad()", "{x}.detach().requires_grad_()", "!{x}.requires_grad_()",
                      "{leaf}.grad.detach()", "!{leaf}.grad = torch.ones_like({leaf0})", "!del {leaf}.grad", "!{leaf}.grad.detach_()", "!{leaf}.data.sub_({leaf0}.grad, alpha=0.1)", "!{leaf}.sub_(0.5 * {leaf0}.grad)",
                      "!{x}.requires_grad = {b}", "{x}.grad_fn is None", "{x}.is_leaf", "{x}.retains_grad"]),
    "hooks": (6, ["!{g}.register_hook(doubled)", "!{g}.register_hook(noted)", "!{g}.register_hook(broken)", "!{g}.register_hook(lambda g: g + {k})", "{hook} = {g}.register_hook(doubled)", "!{old_hook}.remove()",
                  "!{leaf}.register_post_accumulate_grad_hook(accumulated)", "!{g}.register_hook(lambda g: None)", "!{g}.register_hook(lambda g: g.sum())", "!{x}.register_hook(noted)",
                  "!{leaf}.register_post_accumulate_grad_hook(broken)", "!{g}.register_hook(noted_inner)", "!{g}.register_hook(lambda g: g.detach())"]),
    "functions": (6, ["Square.apply({x})", "Scaled.apply({x}, {num})", "{new}, {new} = Both.apply({x}, {any})", "Dirty.apply({x})", "Dirty.apply({x}.clone())", "View.apply({x})", "Same.apply({x})", "Reentrant.apply({x})",
                      "Broken.apply({x})", "Once.apply({x})", "{new}, {new} = Marked.apply({x})", "Unused.apply({x}, {any})", "Wide.apply({x})", "Late.apply({x})", "Raises.apply({x})"]),
    "checkpoints": (3, ["torch.utils.checkpoint.checkpoint(lambda a: (a * {y}).sin(), {x}, use_reentrant=False)", "torch.utils.checkpoint.checkpoint(lambda a: a.exp() * a, {g}, use_reentrant=False)",
                        "torch.utils.checkpoint.checkpoint(lambda a, b: a.sigmoid() * b, {x}, {y}, use_reentrant=True)", "torch.utils.checkpoint.checkpoint(Square.apply, {g}, use_reentrant=False)",
                        "torch.utils.checkpoint.checkpoint(lambda a: a.mul_(2).tanh(), {x}.clone(), use_reentrant=False)", "torch.utils.checkpoint.checkpoint(lambda a: a.relu().sum(), {x}, use_reentrant={b})",
                        "torch.utils.checkpoint.checkpoint(lambda a: a @ {right}, {x}, use_reentrant=False)"]),
    "copying": (3, ["copy.deepcopy({x})", "copy.deepcopy([{x}, {any}])", "pickle.loads(pickle.dumps({x}))", "pickle.loads(pickle.dumps([{x}, {any}]))", "copy.deepcopy({leaf})", "round_trip({x})"]),
    "threads": (2, ["in_thread(lambda: {x} + {y})", "!in_thread(lambda: {g}.sum().backward())", "in_thread(lambda: {x} * 2 if torch.is_grad_enabled() else {x})", "in_thread(lambda: torch.is_grad_enabled())",
                    "in_thread(lambda: {x}.mul_(2))", "in_thread(lambda: torch.is_autocast_enabled('cpu'))"]),
    "modes": (1, ["torch.is_grad_enabled()", "torch.is_inference_mode_enabled()", "torch.is_autocast_enabled('cpu')", "torch.get_default_dtype()", "{x}.is_inference()", "torch.result_type({x}, {y})"]),
    "asking": (2, ["{one}.item()", "bool({one})", "float({one})", "int({num1})", "len({x})", "{x}.tolist()", "{x}.numel()", "{x}.size({d})", "{x}.dim()", "list({x}.shape)", "{x}.element_size()",
                   "{x}.is_floating_point()", "{x}.nelement()", "{x}.is_same_size({like})", "{num} in {x}", "[{x}.shape for _ in {x}]", "torch.is_tensor({x})", "{x}.is_set_to({any})", "{x}.is_nonzero()"]),
    "modules": (3, ["{module} = filled(torch.nn.Linear({k}, 2))", "{module} = filled(torch.nn.LayerNorm({k}))", "{new} = list({old_module}.parameters())", "{old_module}({f})", "{old_module}({any})",
                    "!torch.optim.SGD({old_module}.parameters(), lr=0.5).step()", "!{old_module}.zero_grad()", "!{old_module}.to({Tf})", "{module} = copy.deepcopy({old_module})",
                    "!torch.optim.SGD([{leaf}], lr=0.5, momentum=0.5).step()", "!torch.optim.Adam([{leaf}], lr=0.5).step()", "!torch.nn.utils.clip_grad_norm_([{leaf}], 1.0)",
                    "!torch.amp.GradScaler('cpu').scale({g}.sum()).backward()", "!{old_module}.requires_grad_({b})", "torch.nn.utils.clip_grad_norm_([{leaf}], 0.5)"]),
    "special": (2, each(SPECIAL, "torch.NAME({f})") + ["torch.polygamma(1, {f})", "torch.mvlgamma({f}, 1)", "torch.igamma({f}, {like})", "torch.igammac({f}, {like})", "torch.nextafter({f}, {like})",
                "torch.frexp({f})[0]", "torch.ldexp({x}, {k})", "torch.special.xlog1py({f}, {like})", "torch.logaddexp2({f}, {like})", "!{x}.lgamma_()", "!{x}.digamma_()", "!{x}.i0_()", "torch.special.multigammaln({f}, 1)"]),
    "statistics": (2, ["torch.cov({matrix})", "torch.corrcoef({matrix})", "torch.histc({f}, 4, -1.0, 1.0)", "torch.gradient({f})[0]", "torch.gradient({f}, dim={d})[0]", "torch.cumulative_trapezoid({f}, dim={d})", "torch.vander({vector})",
                   "torch.combinations({vector})", "{new}, {new} = torch.std_mean({f}, {d})", "torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), {x})", "{new}, {new} = {u}.nanmedian({d})", "{u}.nanmedian()", "{new}, {new} = {u}.mode({d})",
                   "torch.addbmm({any}, {batch}, {right})", "torch.linalg.inv({matrix})", "torch.linalg.det({matrix})", "torch.linalg.matrix_power({matrix}, {k})", "torch.linalg.matrix_exp({matrix})", "{x}.diff(dim={d}, prepend={like})",
                   "{u}.nanquantile(0.25)", "{u}.quantile(0.5, {d})", "torch.bincount({small}.abs())", "{x}.index_reduce({d}, {rows}, {x}.index_select({d0}, {rows0}), 'amax')", "torch.special.softmax({f}, {d})", "{x}.fliplr()"]),
    "copied views": (1, ["torch.view_copy({x}, (-1,))", "torch.expand_copy({x}, ({bigger}))", "torch.permute_copy({x}, ({perm}))", "torch.t_copy({x})", "torch.squeeze_copy({x})", "torch.unsqueeze_copy({x}, {d1})", "torch.select_copy({x}, {d}, {at})",
                     "torch.slice_copy({x}, {d}, 0, 1)", "{new} = torch.unbind_copy({x})", "torch.transpose_copy({x}, {d}, {d})", "torch.detach_copy({x})", "torch.alias_copy({x})", "torch.diagonal_copy({matrix})"]),
    "layers": (3, ["torch.nn.functional.group_norm({f}, 1)", "torch.nn.functional.batch_norm({f}, None, None, training=True)", "torch.nn.functional.instance_norm({f})", "torch.nn.functional.local_response_norm({f}, 2)", "torch.nn.functional.interpolate({f}, scale_factor=2)",
                   "torch.nn.functional.adaptive_avg_pool1d({f}, 2)", "torch.nn.functional.adaptive_max_pool1d({f}, 1)", "torch.nn.functional.lp_pool1d({f}, 2.0, 2)", "torch.nn.functional.avg_pool2d({f}, 1)", "torch.nn.functional.max_pool2d({f}, 1)",
                   "torch.nn.functional.poisson_nll_loss({f}, {like})", "torch.nn.functional.gaussian_nll_loss({f}, {like}, {like}.abs())", "torch.nn.functional.soft_margin_loss({f}, {like}.sign())", "torch.nn.functional.hinge_embedding_loss({f}, {like}.sign())",
                   "torch.nn.functional.margin_ranking_loss({f}, {like}, {like}.sign())", "torch.nn.functional.triplet_margin_loss({f}, {like}, {like})", "torch.nn.functional.multilabel_soft_margin_loss({f}, {like})", "torch.nn.functional.pairwise_distance({f}, {like})",
                   "torch.nn.functional.pdist({full_matrix})", "torch.nn.functional.embedding_bag(torch.tensor([[0, 0]]), {matrix})", "torch.nn.functional.pad({f}, (1, 1), mode='reflect')", "torch.nn.functional.pad({f}, (1, 1), mode='replicate')", "torch.nn.functional.pad({f}, (1, 0), mode='circular')",
                   "torch.nn.functional.multi_margin_loss({f}, torch.zeros({f}.shape[:1], dtype=torch.int64))", "torch.nn.functional.rrelu({f}, training=False)", "torch.nn.functional.gumbel_softmax({f}).shape", "torch.nn.functional.bilinear({f}, {like}, torch.ones(2, {k}, {k}))"]),
    "make": (3, ["{tensor}"]),
    "away": (1, ["!del {x}"]),
}

CONTEXTS = ["torch.no_grad()"] * 5 + ["torch.enable_grad()"] + ["torch.autocast('cpu', dtype=torch.bfloat16)"] * 5 + ["torch.autocast('cpu', dtype=torch.float16)"] * 3 + [
    "torch.inference_mode()", "torch.no_grad(), torch.autocast('cpu', dtype=torch.bfloat16)", "torch.no_grad(), torch.enable_grad()", "torch.set_grad_enabled(False)",
    "torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)", "torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)",
    "torch.autocast('cpu', dtype=torch.bfloat16), torch.autocast('cpu', enabled=False)", "torch.autograd.graph.save_on_cpu()",
    "torch.autocast('cpu', dtype=torch.bfloat16, cache_enabled=False)"]

# What a line may name besides its variables; a program's script begins with those that it names.
HELPERS = {
    "log": "log = []",
    "doubled": "def doubled(g):\n    log.append('doubled')\n    return g * 2",
    "noted": "def noted(g):\n    log.append((list(g.shape), g.requires_grad, g.tolist()))",
    "noted_inner": "def noted_inner(g):\n    log.append(torch.is_grad_enabled())",
    "broken": "def broken(g):\n    raise KeyError('hook')",
    "accumulated": "def accumulated(leaf):\n    log.append(('accumulated', list(leaf.shape), leaf.grad is None))",
    "in_thread": """def in_thread(work):
    results = []
    def run():
        try:
            results.append((work(), None))
        except Exception as e:
            results.append((None, e))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = results[0]
    if error is not None:
        raise error
    return value""",
    "round_trip": """def round_trip(value):
    file = io.BytesIO()
    torch.save(value, file)
    return torch.load(io.BytesIO(file.getvalue()))""",
    "filled": """def filled(module):
    for p in module.parameters():
        p.data.copy_(torch.arange(p.numel(), dtype=p.dtype).sub(1).div(4).view(p.shape))
    return module""",
    "Square": """class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g""",
    "Scaled": """class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor
    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor, None""",
    "Both": """class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x.sin(), y + 1
    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * x.cos(), h if ctx.needs_input_grad[1] else None""",
    "Dirty": """class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)
    @staticmethod
    def backward(ctx, g):
        return g * 2""",
    "View": """class View(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[..., :1]
    @staticmethod
    def backward(ctx, g):
        return None""",
    "Same": """class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x
    @staticmethod
    def backward(ctx, g):
        return g * 3""",
    "Reentrant": """class Reentrant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            inner.sin().backward(g)
        return inner.grad""",
    "Broken": """class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        raise KeyError('backward')""",
    "Raises": """class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        raise KeyError('forward')
    @staticmethod
    def backward(ctx, g):
        return g""",
    "Once": """class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 2""",
    "Marked": """class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        big = x > 0
        ctx.save_for_backward(big)
        ctx.mark_non_differentiable(big)
        return x * big, big
    @staticmethod
    def backward(ctx, g, _):
        big, = ctx.saved_tensors
        return g * big""",
    "Unused": """class Unused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x + 0
    @staticmethod
    def backward(ctx, g):
        return g, None""",
    "Wide": """class Wide(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g.sum()""",
    "Late": """class Late(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp()
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return g * y""",
}
