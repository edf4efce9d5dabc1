"""Whose memory results lie in: a view of an operand's where torch gives a view, and a copy where it gives a copy, at sizes that make
the function trivial, too. A result that shares memory by accident is written into later, and the input, perhaps a parameter, changes.
"""

import copy
import re
import warnings
from typing import Any, Dict, List

import numpy as np
import pytest
from samples import OPERATORS, SAMPLES, function, to_ampc
from where import DEVICE, ON_GPU

import ampc

# Expressions over the tensors of `operands`, a library `lib` and its nn.functional `F`.
CALLS: Dict[str, List[str]] = {
    "repeated once, raised to 1": [
        "x.repeat(1,1)", "x.repeat(1,1,1)", "lib.tile(x,(1,1))", "x.tile(1)", "x.repeat_interleave(1,0)", "x.repeat_interleave(1)",
        "lib.chain_matmul(x)", "q.matrix_power(1)", "lib.linalg.matrix_power(q,1)", "lib.linalg.matrix_power(q,0)",
        "lib.linalg.matrix_power(lib.eye(2),-1)", "lib.linalg.multi_dot([q,q])",
    ],
    "channels in another order": [
        "F.pixel_shuffle(x4,1)", "F.pixel_unshuffle(x4,1)", "F.channel_shuffle(x4,1)", "lib.nn.PixelShuffle(1)(x4)", "lib.nn.ChannelShuffle(1)(x4)",
        "lib.channel_shuffle(x4,1)", "lib.pixel_shuffle(x4,1)",
    ],
    "indexed, by masks without dimensions too": [
        "x.diff(n=0)", "lib.diff(x,0)", "x[True]", "x[lib.tensor(True)]", "x[None,True]", "x[0,True]", "x[...,True]", "s[True]",
        "s[lib.tensor(True)]", "s[False]", "s[...]", "s[()]", "x[lib.tensor(1)]", "x[0]", "x[:]", "x[lib.tensor([0,1])]", "x[[0,1]]", "x[x>-100]",
        "x[:,lib.tensor([0])]",
    ],
    "elements picked": [
        "s.take(lib.tensor(0))", "x.take(lib.tensor([0]))", "s.masked_select(lib.tensor(True))", "x.masked_select(lib.tensor(True))",
        "lib.masked_select(s,lib.tensor(True))",
    ],
    "dropout that drops nothing": [
        "F.dropout(x,0.0,True)", "F.dropout(x,0.5,False)", "F.dropout(x,0.0,False)", "F.dropout2d(x4,0.5,False)", "F.dropout1d(x3,0.0,True)",
        "F.dropout3d(x5,0.5,False)", "F.alpha_dropout(x,0.0,True)", "F.alpha_dropout(x,0.5,False)", "lib.nn.Dropout(0.5).eval()(x)",
        "lib.nn.Identity()(x)", "lib.nn.Flatten()(x)", "lib.nn.Flatten()(x3)", "lib.nn.Unflatten(0,(1,3))(x)",
    ],
    "windows of one place": [
        "F.avg_pool2d(x4,1)", "F.max_pool2d(x4,1)", "F.avg_pool1d(x3,1)", "F.max_pool1d(x3,1)", "F.adaptive_avg_pool2d(x4,(4,4))",
        "F.adaptive_avg_pool2d(y4,1)", "F.adaptive_max_pool2d(x4,(4,4))", "F.adaptive_avg_pool1d(x3,4)", "F.lp_pool2d(x4,2,1)",
        "F.interpolate(x4,scale_factor=1)", "F.interpolate(x4,scale_factor=1.0,mode='bilinear')", "F.interpolate(x4,size=(4,4),mode='bicubic')",
        "F.interpolate(x4,size=(4,4),mode='area')", "F.interpolate(x4,size=(4,4),mode='nearest-exact')", "F.upsample(x4,scale_factor=1)",
        "F.unfold(y4,1)", "F.fold(F.unfold(y4,1),(1,1),1)",
    ],
    "padded by nothing": [
        "F.pad(x,(0,0))", "F.pad(x,(0,0,0,0))", "F.pad(x3,(0,0),mode='reflect')", "F.pad(x3,(0,0),mode='circular')",
        "F.pad(x3,(0,0),mode='replicate')", "F.pad(x,())", "lib.nn.ZeroPad2d(0)(x4)", "lib.nn.ConstantPad1d(0,1.0)(x3)", "F.pad(x,(-1,0))",
    ],
    "layers": [
        "F.normalize(x)", "F.threshold(x,-100.,0.)", "F.hardtanh(x,-100,100)", "F.relu(x)", "F.relu6(x)", "F.leaky_relu(x,1.0)", "F.elu(x)",
        "F.softmax(s1,0)", "F.log_softmax(s1,0)", "F.glu(x)", "F.prelu(x,lib.ones(1))", "F.rrelu(x,1.,1.)", "F.layer_norm(x,(4,))",
        "F.one_hot(lib.tensor([0]))", "F.embedding(lib.tensor([0,1,2]),x)", "F.linear(x,lib.eye(4))", "F.bilinear(x,x,lib.ones(1,4,4))",
        "F.local_response_norm(x3,1,0.,1.,1.)", "F.grid_sample(y4,lib.zeros(1,1,1,2))",
    ],
    "views, casts and copies": [
        "x.to(lib.float32)", "x.to('cpu')", "x.to(x)", "x.float()", "x.double()", "x.type(lib.float32)", "x.type_as(x)",
        "x.to(lib.float32,copy=True)", "x.cpu()", "x.contiguous()", "x.contiguous(memory_format=lib.contiguous_format)",
        "x4.contiguous(memory_format=lib.channels_last)", "x.clone()", "x.detach()", "x.data", "x.view(3,4)", "x.view(-1)", "x.view_as(x)",
        "x.reshape(3,4)", "x.reshape(-1)", "x.T.reshape(-1)", "x.reshape_as(x)", "x.ravel()", "x.T.ravel()", "x.flatten()", "s.flatten()",
        "x.flatten(0,0)", "x.T.flatten()", "x.unflatten(0,(1,3))", "x.squeeze()", "x.squeeze(0)", "x.unsqueeze(0)", "x.T", "x.mT", "x.t()",
        "s1.t()", "x3.permute(2,0,1)", "x.transpose(0,1)", "x.movedim(0,1)", "x.moveaxis(0,1)", "x.swapaxes(0,1)", "x.swapdims(0,1)",
        "x.expand(3,4)", "x.expand(2,3,4)", "x.expand_as(x)", "x.broadcast_to((3,4))", "lib.broadcast_tensors(x)", "lib.broadcast_tensors(x,x)", "x.sum_to_size(3,4)",
        "lib.meshgrid(s1,indexing='ij')", "lib.meshgrid(s1,s1,indexing='ij')", "lib.atleast_1d(s)", "lib.atleast_1d(x)", "lib.atleast_2d(s1)",
        "lib.atleast_2d(x)", "lib.atleast_3d(x)", "x.narrow(0,0,3)", "x.narrow_copy(0,0,3)", "x.select(0,0)", "x.unbind()", "x.split(3)",
        "x.split([3])", "x.chunk(1)", "x.tensor_split(1)", "x.hsplit(1)", "x.vsplit(1)", "x3.dsplit(1)", "x.diagonal()", "lib.linalg.diagonal(x)",
        "lib.diag(s1)", "lib.diag(x)", "x.diag()", "lib.diagflat(s)", "x.unfold(0,1,1)", "x.as_strided((2,),(1,))", "x.conj()", "x.resolve_conj()",
        "x.resolve_neg()", "lib.real(x)", "x.adjoint()", "x.H", "x.positive()", "+x", "lib.positive(x)", "x.real", "x.mH",
    ],
    "reductions of one element": [
        "x.sum(())", "x.mean(())", "s.sum()", "s.mean()", "s.sum(0)", "s1.sum()", "s1.prod()", "s.max()", "s.amax()", "s1.max(0)", "s.cumsum(0)",
        "s1.cumsum(0)", "s1.cumprod(0)", "s1.cummax(0)", "s1.logcumsumexp(0)", "s.sort()", "s1.sort()", "s1.argsort()", "s1.unique()",
        "s1.unique_consecutive()", "s1.topk(1)", "s1.kthvalue(1)", "s1.median()", "s1.mode()", "s1.median(0)", "s1.quantile(0.5)", "s.norm()",
        "s.logsumexp(0)", "s.all()", "b.all()", "b.any()", "bs.all()", "bs.any()", "s.nansum()", "s.min(0)", "s.aminmax()",
        "s1.std(0,unbiased=False)",
    ],
    "values that stay in place": [
        "x.roll(0)", "x.roll(0,0)", "x.flip(())", "x.flip([])", "x.flip(0)", "y4.flip(0)", "x.rot90(0)", "x.rot90(4)", "x.fliplr()", "x.flipud()",
        "x.tril(10)", "x.triu(-10)", "s1.diff()",
    ],
    "arithmetic that changes nothing": [
        "x.clamp(-100,100)", "x.clamp(min=lib.full((),-100.))", "x.clip(-100,100)", "x.round(decimals=0)", "x.round()", "i.round()", "i.floor()",
        "i.ceil()", "i.trunc()", "i.fix()", "x.pow(1)", "x**1", "x*1", "x+0", "x/1", "x-0", "x//1", "i//1", "i&i", "i", "(x+0.)", "x.neg().neg()",
        "x.abs()", "i.abs()", "x.nan_to_num()", "i.nan_to_num()", "x.maximum(x)", "x.fmax(x)", "x.max(x)", "lib.where(lib.tensor(True),x,x)",
        "x.where(lib.tensor(True),x)", "x.masked_fill(lib.tensor(False),1.)", "x.masked_scatter(lib.tensor(False),x)", "x.lerp(x,0.)",
        "x.lerp(x,1.)", "x.addcmul(x,x,value=0)", "x.addcdiv(x,x,value=0)", "x.add(x,alpha=0)", "x.xlogy(x)", "x.float_power(1)", "x.heaviside(x)",
        "x.copysign(x)", "x.deg2rad()", "x.frac()", "x.sgn()", "lib.square(x)", "x.hypot(x)", "b.logical_not()", "b", "(b.logical_or(b))",
    ],
    "one tensor joined": [
        "lib.cat([x])", "lib.cat((x,),1)", "lib.concat([x])", "lib.stack([x])", "lib.hstack([x])", "lib.vstack([x])", "lib.dstack([x])",
        "lib.column_stack([x])", "lib.row_stack([x])", "lib.block_diag(x)", "lib.cartesian_prod(s1)", "lib.cartesian_prod(s1,s1)",
        "lib.combinations(s1,1)", "lib.cat([x,e])", "lib.cat([e,x])", "lib.cat([x,lib.empty(0,4)])",
    ],
    "nothing written, everything read": [
        "x.index_select(0,lib.tensor([0,1,2]))", "s.index_select(0,lib.tensor([0]))", "x.gather(0,lib.zeros(3,4,dtype=lib.int64))",
        "s.gather(0,lib.tensor(0))", "x.index_fill(0,lib.tensor([],dtype=lib.int64),1.)",
        "x.index_add(0,lib.tensor([],dtype=lib.int64),lib.empty(0,4))", "x.index_copy(0,lib.tensor([],dtype=lib.int64),lib.empty(0,4))",
        "x.index_put((lib.tensor([],dtype=lib.int64),),lib.empty(0,4))", "x.scatter(0,lib.empty(0,4,dtype=lib.int64),1.)",
        "x.scatter_add(0,lib.empty(0,4,dtype=lib.int64),x)", "x.scatter_reduce(0,lib.empty(0,4,dtype=lib.int64),x,'sum')",
        "x.put(lib.tensor([],dtype=lib.int64),lib.tensor([]))", "lib.take_along_dim(x,lib.zeros(3,4,dtype=lib.int64),0)",
        "x.select_scatter(x[0],0,0)", "x.slice_scatter(x,0)", "x.diagonal_scatter(x.diagonal())", "x.as_strided_scatter(x,(3,4),(4,1))",
        "x.masked_fill(x>100,0.)", "s.masked_fill(lib.tensor(True),s)", "s.index_fill(0,lib.tensor([0]),1.)", "s.scatter(0,lib.tensor(0),s)",
        "x.fill_diagonal_(1.)", "x.put_(lib.tensor([0]),lib.tensor([1.]))",
    ],
    "products": [
        "lib.einsum('ij->ij',x)", "lib.einsum('ij',x)", "lib.einsum('ij->ji',x)", "lib.einsum('ii->i',q)", "lib.einsum('ijk->kij',x3)",
        "lib.einsum('i->i',s1)", "lib.einsum('...->...',x)", "lib.einsum('ij->',s11)", "lib.einsum('ij->i',s11)", "lib.einsum(',->',s,s)",
        "lib.tensordot(x,s,0)", "lib.kron(x,s1)", "lib.inner(s,s1)", "lib.outer(s1,s1)", "lib.dot(s1,s1)", "lib.addmm(q,q,q,alpha=0)",
        "lib.addmm(q,q,q,beta=1,alpha=0)", "lib.baddbmm(q3,q3,q3,alpha=0)", "lib.addmv(q[0],q,q[0],alpha=0)", "lib.addr(q,q[0],q[0],alpha=0)",
        "lib.addbmm(q,q3,q3,alpha=0)", "lib.renorm(x,2,0,1e9)", "lib.cdist(x,x)", "lib.cross(x33,x33)", "lib.trace(s11)", "lib.det(s11)",
        "lib.inverse(lib.eye(3))", "lib.linalg.inv(s11)", "lib.cholesky_solve(x34,lib.eye(3))",
        "lib.linalg.solve_triangular(lib.eye(3),x34,upper=True)", "lib.triangular_solve(x34,q3i)", "lib.linalg.qr(q,mode='r')",
        "lib.linalg.matrix_exp(lib.zeros(0,0))", "lib.linalg.cholesky(s11.abs())", "lib.linalg.norm(s)", "lib.linalg.vector_norm(s)",
        "lib.vander(s1,N=1)", "lib.gradient(s2)", "lib.trapezoid(s1)", "lib.bucketize(s1,s1)", "lib.bincount(lib.tensor([0]))",
    ],
    "tensors from tensors": [
        "lib.as_tensor(x)", "lib.asarray(x)", "lib.tensor(x)", "lib.as_tensor(x,dtype=lib.float32)", "lib.asarray(x,copy=True)",
        "lib.as_tensor(x,dtype=lib.float64)", "x.new_tensor(x)", "lib.scalar_tensor(1.)", "lib.empty_like(x)", "x.new_zeros(3)",
        "lib.from_numpy(x.numpy())", "lib.tensor(x.numpy())", "lib.as_tensor(x.numpy())", "lib.from_dlpack(x)", "lib.asarray(x.numpy())",
    ],
    "utilities": [
        "lib.nn.utils.parameters_to_vector([x])", "lib.nn.utils.parameters_to_vector([s1])", "lib.nn.utils.rnn.pad_sequence([x])",
        "lib.nn.utils.rnn.pad_sequence([x],batch_first=True)", "lib.nn.utils.rnn.pack_sequence([x]).data",
        "lib.nn.utils.rnn.unpad_sequence(lib.nn.utils.rnn.pad_sequence([x]),lib.tensor([3]))", "lib.special.logit(x)", "lib.special.xlogy(x,x)",
        "lib.special.expit(x)",
    ],
    "functions by other names": [
        "lib.permute_copy(x,(0,1))", "lib.expand_copy(x,(3,4))", "lib.narrow_copy(x,0,0,3)", "lib.clone(x)", "lib.ravel(x)", "lib.msort(s1)",
        "lib.cumulative_trapezoid(s1)", "lib.logical_and(b,b)", "lib.cov(s1)", "lib.corrcoef(s1)", "lib.histc(s1)", "lib.isin(x,x)",
        "lib.nanmedian(s)", "lib.quantile(s,0.5)", "lib.special.entr(x)", "lib.celu(x)", "lib.selu(x)", "lib.rrelu(x)", "lib.dropout(x,0.5,False)",
        "lib.feature_dropout(x4,0.5,False)", "lib.alpha_dropout(x,.5,False)", "lib.hardshrink(x)", "lib.relu(x)", "lib.threshold(x,-9.,0.)",
        "lib.conv2d(y4,lib.ones(1,1,1,1))", "lib.conv1d(s111,lib.ones(1,1,1))",
    ],
    "in place, and copies of objects": [
        "x.zero_()", "x.copy_(x)", "x.add_(0)", "x.mul_(1)", "x.t_()", "x.squeeze_()", "x.unsqueeze_(0)", "x.transpose_(0,1)", "x.requires_grad_()",
        "x.detach_()", "x.resize_(3,4)", "x.set_(x)", "x.swapaxes_(0,1)", "x.round_()", "x.index_fill_(0,lib.tensor([0]),1.)", "x.clamp_(-100,100)",
        "x.numpy()", "copy.copy(x)", "copy.deepcopy(x)", "lib.nn.Parameter(x)", "lib.nn.Parameter(x).data",
        "lib.utils.checkpoint.checkpoint(lambda v:v,x,use_reentrant=False)", "x.__array__()", "lib.Tensor(x)", "x.new(x)",
        "x.bfloat16().bfloat16()", "x.to_dense()", "lib.isreal(x)", "lib.real(x)",
    ],
}


def operands(lib: Any) -> Dict[str, Any]:
    where = DEVICE if lib is ampc else "cpu"

    def counted(*shape: int) -> Any:
        return lib.from_numpy(np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype("float32")).to(where)

    return {"s": counted(), "s1": counted(1), "s2": counted(2), "s11": counted(1, 1), "s111": counted(1, 1, 1), "x": counted(3, 4),
            "x33": counted(3, 3), "x34": counted(3, 4), "q": counted(3, 3), "q3": counted(3, 3, 3), "q3i": lib.eye(3),
            "x3": counted(3, 2, 4), "x4": counted(1, 4, 4, 4), "y4": counted(1, 1, 1, 1), "x5": counted(1, 2, 2, 2, 2), "e": lib.zeros(0),
            "i": lib.from_numpy(np.arange(12).reshape(3, 4)).to(where), "b": lib.ones(3, dtype=lib.bool), "bs": lib.tensor(True)}


def address(x: Any) -> int:
    """Of the storage."""
    if isinstance(x, np.ndarray):
        return x.ctypes.data
    return x._storage_ptr() if isinstance(x, ampc.Tensor) else x.untyped_storage().data_ptr()


def every_tensor(x: Any) -> List[Any]:
    if isinstance(x, (list, tuple)):
        return [t for item in x for t in every_tensor(item)]
    return [x] if hasattr(x, "shape") and np.prod(x.shape, dtype=int) else []


def memory_of(lib: Any, call: str) -> List[Any]:
    """For each tensor that a call gives: the operands that it shares memory with, and whether it is one of them."""
    names = operands(lib)
    given = {name: t for name, t in names.items() if every_tensor(t)}
    result = eval(call, {**names, "lib": lib, "F": lib.nn.functional, "copy": copy})
    return [([name for name, t in given.items() if address(r) == address(t)], any(r is t for t in given.values()))
            for r in every_tensor(result)]


OF_THE_HOST = re.compile(r"numpy\(|cpu|__array__")  # whose memory a GPU does not share


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", CALLS)
def test_results_lie_where_torchs_do(group):
    torch = pytest.importorskip("torch")
    calls = [call for call in CALLS[group] if not (ON_GPU and OF_THE_HOST.search(call))]
    differ = [(call, ours, theirs) for call in calls if (ours := memory_of(ampc, call)) != (theirs := memory_of(torch, call))]
    assert not differ, "\n".join(f"{call}: torch {theirs}, ours {ours}" for call, ours, theirs in differ)


OF_THE_CPU = {"fused_attention", "fused_attention_backward"} if ON_GPU else set()


@pytest.mark.parametrize("name", [name for name, row in OPERATORS.items() if row["memory"] != "either" and name not in OF_THE_CPU])
def test_the_tables_column_of_memory_is_true(name):
    """At the samples' sizes, which need no torch."""
    for sample in SAMPLES[name]:
        args, kwargs = to_ampc(sample, ampc.float32)
        inputs = {address(t) for t in every_tensor([*args, *kwargs.values()])}
        for result in every_tensor(function(name)(*args, **kwargs)):
            assert (address(result) in inputs) == (OPERATORS[name]["memory"] == "view")


def test_a_write_into_a_copy_leaves_a_parameter_as_it_was():
    """What a shared result would do to a training."""
    w = ampc.nn.Parameter(ampc.ones(2, 2))
    with ampc.no_grad():
        for result in (w.repeat(1, 1), w.repeat_interleave(1, 0), w.matrix_power(1), w[True], w.diff(n=0), ampc.chain_matmul(w)):
            result.zero_()
    assert w.tolist() == [[1, 1], [1, 1]]


def test_gradients_pass_through_copies_of_trivial_sizes():
    for call in ("x.repeat(1, 1)", "x.tile(1)", "x.repeat_interleave(1, 0)", "x.diff(n=0)", "x[True]", "x[ampc.tensor(True)]", "x.matrix_power(1)"):
        x = ampc.ones(2, 2, requires_grad=True)
        (eval(call) * 3).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [[3, 3], [3, 3]], call


def test_copy_shares_what_torchs_copy_shares():
    """copy.copy: a leaf on the same memory, of the same class, with the same attributes, no gradient."""
    p = ampc.nn.Parameter(ampc.ones(2))
    p.tag = ["kept"]
    p.grad = ampc.ones(2)
    twin = copy.copy(p)
    assert type(twin) is ampc.nn.Parameter and twin.requires_grad and twin.is_leaf and twin.grad is None and twin.tag is p.tag
    with ampc.no_grad():
        twin.zero_()
    assert p.tolist() == [0, 0]
    y = p * 1
    assert copy.copy(y).is_leaf and copy.copy(y).requires_grad


@pytest.mark.parametrize("write", [lambda x: x.fill_(3), lambda x: x[0].fill_(3), lambda x: x.fill_diagonal_(1)])
def test_a_view_of_what_was_detached_in_place_and_written_has_no_history(write):
    """It would be that of values which the memory no longer holds."""
    leaf = ampc.ones(2, 2, requires_grad=True)
    base = leaf * 2
    view = base.view(-1)
    base.detach_()
    assert view.requires_grad  # still the values that were computed
    write(base)
    assert not view.requires_grad and view.is_leaf and view.grad_fn is None
    (view * 2 + leaf.sum()).sum().backward()
    assert leaf.grad.tolist() == [[4, 4], [4, 4]]


def test_asarray_is_cut_off_the_graph_where_that_is_asked_for(torch):
    """It shares memory either way. A leaf is the same tensor afterwards, as in torch."""
    for want in (None, False, True):
        for dtype in (None, "float64"):
            for made in ("leaf", "leaf * 2", "leaf.detach()"):
                seen = []
                for lib in (ampc, torch):
                    x = eval(made, {"leaf": lib.ones(3, requires_grad=True)})
                    y = lib.asarray(x, dtype=dtype and getattr(lib, dtype), **({} if want is None else {"requires_grad": want}))
                    seen.append((y.requires_grad, y.is_leaf, y is x, x.requires_grad, y.data_ptr() == x.data_ptr()))
                assert seen[0] == seen[1], (want, dtype, made, seen)


def test_a_view_without_elements_knows_where_it_lies(torch):
    """What grows it, or writes into it, goes there."""
    made = ("w[3:3]", "w[3:5][2:]", "w.narrow(0, 3, 0)", "w[3:3].resize_(2)", "w[3:5].resize_(0).resize_(2)", "w[3:3].as_strided((2,), (1,))",
            "w.split([2, 0, 6])[1]", "w.view(4, 2)[4:]", "w.view(4, 2)[:, 1:1]", "w[::2][2:]", "w.view(2, 4)[:, 2:2]")
    for what in made:
        ours, theirs = (eval(what, {"w": lib.ones(8)}) for lib in (ampc, torch))
        assert (ours.storage_offset(), tuple(ours.shape)) == (theirs.storage_offset(), tuple(theirs.shape)), what
    writes = ("lib.zeros(5, out=w[2:4])", "lib.add(lib.ones(2), 1, out=w[3:3])", "w[5:5].resize_(2).fill_(7)", "lib.arange(3., out=w[1:1])")
    for what in writes:
        w = [lib.arange(8.0) for lib in (ampc, torch)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for lib, values in zip((ampc, torch), w):
                eval(what, {"lib": lib, "w": values})
        assert w[0].tolist() == w[1].tolist(), what


@pytest.mark.parametrize("reshaped", ["x.t().flatten()", "x.t().reshape(12)", "x.t().reshape_as(x)", "z.flatten(1, 2)", "x.reshape(12)", "z.flatten(0, 0)"])
def test_a_copy_of_another_shape_is_no_view(torch, reshaped):
    for recorded in (False, True):
        seen = []
        for lib in (ampc, torch):
            x = lib.arange(12.0).reshape(3, 4).clone().requires_grad_(recorded)
            z = lib.ones(2, 3, 4).transpose(1, 2)
            y = eval(reshaped, {"x": x, "z": z})
            seen.append((y._is_view(), y._base is x, y.is_leaf, y.tolist()))
        assert seen[0] == seen[1]
