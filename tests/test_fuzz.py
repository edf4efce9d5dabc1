"""Programs drawn anew in every run, each beside torch. `make soak` runs a million."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import references

import ampc

HERE = Path(__file__).resolve().parent
PROGRAMS = int(os.environ.get("AMPC_PROGRAMS", "3000"))


X = "v1 = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)"
V = "v1 = torch.tensor([0.25, 0.5], requires_grad=True)"
# Programs that once differed, by what they are about.
FOUND = {
    "a new geometry in place has a history": [X, "v2 = v1 * 1", "v2.t_()", "v2.unsqueeze_(0)", "v2.squeeze_()", "(v2 * torch.arange(6.0).view(3, 2)).sum().backward()"],
    "of a leaf it is refused": [X, "v1.t_()", "v1.squeeze_()", "v1.unsqueeze_(0)"],
    "a view that has changed its geometry is written": [X, "v2 = v1 * 1", "v3 = v2[0]", "v3.unsqueeze_(1)", "v3.mul_(2)", "(v2.sum() + v3.sum()).backward()"],
    "compositions in place keep what backward needs": [X, "v2 = v1 * 1", "v2.sinc_()", "v2.nan_to_num_()", "v2.deg2rad_()", "v2.sum().backward()"],
    "and refuse dtypes": ["v1 = torch.tensor([1, 2])", "v1.sinc_()", "v1.deg2rad_()"],
    "quotients are overwritten": [V, "v2 = v1 / v1.sum()", "v2.mul_(2)", "v2.sum().backward()"],
    "erfinv is overwritten": [V, "v2 = v1.erfinv()", "v2.mul_(2)", "v2.sum().backward()"],
    "what an inverse and ndtri are of is overwritten": ["v1 = torch.tensor([[0.5, 0.25], [0.125, 0.5]], requires_grad=True)", "v2 = v1 * 1", "v3 = torch.linalg.inv(v2)", "v4 = torch.linalg.matrix_power(v2, -2)", "v5 = torch.linalg.inv_ex(v2)[0]",
                                                         "v6 = torch.special.ndtri(v2)", "v2.zero_()", "(v3 + v4 + v5 + v6).sum().backward()"],
    "bounds of nan, and of what is nan": ["v1 = torch.tensor([float('nan'), 1.0, 1.5, 3.0], requires_grad=True)", "v2 = torch.tensor([2.0, float('nan'), 2.0, 2.0], requires_grad=True)", "v3 = torch.clamp(v1, min=v2)",
                                          "v4 = torch.clamp(v1, max=v2)", "(v3 + v4).sum().backward()"],
    "prelu of infinities": ["v1 = torch.tensor([float('inf'), 1.0, 0.0, -1.0], requires_grad=True)", "v2 = torch.tensor([float('inf')], requires_grad=True)", "v3 = torch.nn.functional.prelu(v1, v2)", "v3.sum().backward()"],
    "nothing is reduced, and takes part": [V, "v2 = v1[:0]", "v3 = torch.tensor([], dtype=torch.int64)", "v4 = torch.ones(2)", "v5 = v4.index_reduce(0, v3, v2, 'amax')", "v6 = v4.scatter_reduce(0, v3, v2, 'prod')",
                                           "v7 = v4.scatter(0, v3, v2)", "(v5 + v6 + v7).sum().backward()"],
    "logaddexp is overwritten": [V, "v2 = torch.logaddexp(v1, v1 * 3) + torch.logaddexp2(v1, v1 * 3)", "v3 = torch.logaddexp(v1, v2)", "v3.zero_()", "v2.sum().backward()"],
    "what saved nothing is gone through twice": [V, "v2 = v1.fmod(0.3)", "v2.sum().backward()", "v2.sum().backward()"],
    "powers of integers in float64": ["v1 = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)", "v2 = 3 ** v1", "v2.backward()", "v3 = torch.xlogy(v1, 3)", "v3.backward()"],
    "erfinv near 0": ["v1 = torch.tensor([1e-30, 1e-12, -1e-7, 0.1])", "v2 = v1.erfinv()"],
    "clamp at its bounds": [V, "v2 = torch.clamp(v1, max=torch.tensor([0.25, 0.25]))", "v2.sum().backward()"],
    "clamp of truth values": ["v1 = torch.tensor([True, False])", "v2 = torch.clamp(v1, min=3)"],
    "logsumexp of nan beside an infinity": ["v1 = torch.tensor([[float('nan'), float('inf')], [1.0, float('inf')], [float('-inf'), float('-inf')]])", "v2 = v1.logsumexp(1)"],
    "relu of nan": ["v1 = torch.tensor([float('nan'), -1.0, 0.0, 1.0], requires_grad=True)", "torch.relu(v1).sum().backward()"],
    "the smaller one beside nan": [V, "v2 = torch.minimum(v1, torch.tensor([float('nan'), 0.5]))", "v3 = torch.maximum(v1, torch.tensor([float('nan'), 0.5]))", "(v2 + v3).sum().backward()"],
    "masks without dimensions among indices": [X, "v2 = v1[True, torch.tensor([0])]", "v3 = v1[True, True, :]", "v4 = v1[False, ..., 0]", "v2.sum().backward()"],
    "leading ones of what is assigned": [X, "v2 = v1.detach().clone()", "v2[torch.tensor([0])] = torch.ones(1, 1, 3)", "v2[True, True] = torch.ones(1, 1, 1, 3)", "v2[torch.tensor([True, False])] = torch.ones(1, 2, 3)",
                                         "v2[0] = torch.ones(1, 1, 3)", "v2[torch.tensor([1])] = torch.ones(1, 1, 2)"],
    "a composition whose operator fails": [V, "v2 = Same.apply(v1)", "with torch.no_grad(): v2.pow_(2)", "v3 = torch.addr(torch.ones(2), torch.ones(2), v2.half())", "v4 = torch.addr(v1, v1, v2)"],
    "indices that do not broadcast": [X, "v2 = v1[torch.tensor([0, 1, 0]), torch.tensor([0, 1])]"],
    "nan among boundaries": ["v1 = torch.tensor([float('nan'), 0.0, 3.0])", "v2 = torch.bucketize(v1, torch.tensor([1.0, 2.0]))", "v3 = torch.isin(torch.tensor([0.0, 1.0]), v1)"],
    "gradients take the dtype of what they are for": [V, "v1.backward(torch.tensor([1, 2]))"],
    "a leaf that is none any more": [V, "v2 = v1 * 2", "v1.requires_grad = False", "v2.sum().backward()"],
    "checkpoints of what they write": [V, "v2 = torch.utils.checkpoint.checkpoint(lambda a: a.mul_(2).tanh(), v1.clone(), use_reentrant=False)", "v2.sum().backward()"],
    "results without gradients are written": [V, "with torch.no_grad(): v2 = v1.median()", "v2.mul_(v1.sum())", "v2.backward()"],
    "results of compositions are detached": ["v1 = torch.tensor([1.0, 2.0])", "v2 = v1.roll(1)", "v2.detach_()"],
    "the k-th value lies together": ["v1 = torch.tensor([[3.0, 1.0], [2.0, 4.0]])", "v2, v3 = v1.kthvalue(1, -1)", "v4 = v1.rot90()"],
    "histories are pickled as leaves": [V, "v2 = pickle.loads(pickle.dumps(v1 * 2))"],
    "numbers chosen by a condition": ["v1 = torch.tensor([True])", "v2 = torch.where(v1, 1.0, True)", "v3 = torch.where(v1, 0.5, -1)"],
    "squares of truth values": ["v1 = torch.tensor([True])", "v2 = v1.square()", "v3 = v1 ** 2"],
    "joins of 0-d tensors": ["v1 = torch.block_diag(torch.tensor([1.0], dtype=torch.float16), torch.tensor(2.0))"],
    "what does not fit": [X, "v2 = v1.slice_scatter(torch.zeros(3), 0, 0, 1)", "v3 = v1.select_scatter(torch.zeros(()), 0, 0)", "v4 = v1.fill_(torch.zeros(2))", "v5 = v1.sum_to_size((4,))",
                          "v6 = torch.addmv(torch.zeros(2), torch.zeros(1, 2), torch.zeros(2))", "v7 = v1.narrow(0, 3, 1)", "v8 = v1.narrow(0, 0, -1)", "v9 = v1[0].adjoint()", "v10 = v1[0].rot90()",
                          "v11 = torch.broadcast_tensors(v1, 1.0)", "v12 = torch.block_diag(v1[None])", "v13 = float(v1)", "v14 = torch.nn.functional.one_hot(v1)"],
    "0-d tensors": ["v1 = torch.tensor(2.0)", "v2 = v1.size(-1)", "v3 = v1.chunk(1)", "v4 = v1.tensor_split(1)", "v5 = v1.narrow(0, 0, 1)", "v6 = v1.unflatten(0, (1, 1))", "v7 = v1.movedim(0, 0)",
                    "v8 = v1.adjoint()", "v9 = torch.nonzero(v1, as_tuple=True)", "v10 = v1.masked_scatter(torch.tensor([True, False]), torch.ones(2))", "v11, v12 = v1.kthvalue(1, 1)", "v13 = v1.mT"],
    "no elements": ["v1 = torch.zeros(2, 0)", "v2 = v1.unflatten(0, (-1, 1))", "v3 = torch.trapezoid(v1)", "v4 = v1.amax()"],
    "nothing filled": ["v1 = torch.tensor(1.0)", "v1.index_fill_(0, torch.tensor([], dtype=torch.int64), 2.0)", "v1.index_fill_(0, torch.tensor([0, 0]), 3.0)", "v2 = v1.index_fill(-1, torch.tensor(0), 4.0)",
                       "v1.index_copy_(0, torch.tensor([], dtype=torch.int64), torch.zeros(0))", "v1.index_copy_(0, torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))"],
    "numbers that uint8 and int8 do not hold": ["v1 = torch.tensor([2, 7], dtype=torch.uint8)", "v2 = v1 // -1", "v3 = v1 % -3", "v4 = torch.fmod(v1, -1)", "v5 = torch.tensor([5], dtype=torch.int8) // 300"],
    "deviations whose squares leave float32": ["v1 = torch.tensor([[1.0, 1.0, 1e30], [1e-30, 2e-30, 3e-30]])", "v2 = v1.std(1)", "v3 = v1.var(0)", "v4 = v1.std()"],
    "windows of what is not contiguous": [X, "v2 = v1.t().unfold(0, 2, 1)", "v2.square().sum().backward()", "v3 = v1.unbind(1)[0].unfold(0, 1, 1)", "v4 = v1.unfold(1, 2, 2)", "v5 = torch.tensor(1.0).unfold(0, 1, 1)"],
    "truth values as targets and exponents": [V, "v2 = torch.nn.functional.smooth_l1_loss(v1.detach(), v1 > 0.3)", "v3 = torch.nn.functional.huber_loss(v1.detach(), v1 > 0.3)", "v4 = v1 ** True", "v4.sum().backward()",
                                              "v5 = torch.div(v1 > 0, 2, rounding_mode='trunc')"],
    "the largest of nan": ["v1 = torch.tensor([float('nan'), 1.0, float('nan')], requires_grad=True)", "v1.max().backward()", "v1.min().backward()"],
    "leaves are packed, too": [V, "with torch.autograd.graph.save_on_cpu(): v2 = (v1 * v1).sum()", "v2.backward()"],
    "leaves that are written after they were packed": [V, "with torch.autograd.graph.save_on_cpu(): v2 = (v1 * v1).sum()", "torch.optim.SGD([v1], lr=0.5).zero_grad()",
                                                       "with torch.no_grad(): v1.mul_(2)", "v2.backward(create_graph=True)", "v3, = torch.autograd.grad((v1 * v1.grad).sum(), v1)"],
    "results are detached": ["v1 = torch.ones(2, requires_grad=True)", "v2 = v1.median()", "with torch.no_grad(): v2.div_(1)", "v2.detach_()"],
    "the first error of a composition": ["v1 = torch.nn.functional.multilabel_soft_margin_loss(torch.tensor(1.0), torch.tensor([True, False]))"],
    "slices copied to a number": ["v1 = torch.tensor(1.0)", "v1.index_copy_(0, torch.arange(0), torch.ones(1, 0))"],
    "no slices and a number": ["v1 = torch.zeros(2)", "v1.index_copy_(0, torch.arange(0), torch.tensor(1.0))"],
    "slices copied": ["v1 = torch.zeros(4, 2)", "v1.index_copy_(0, torch.tensor([0, 2]), torch.ones(2, 1))", "v2 = torch.tensor(1.0).index_select(0, torch.arange(0))"],
    "activations of nan": ["v1 = torch.tensor([float('nan'), 1.0, -4.0, 7.0, 3.0, -3.0, 0.0], requires_grad=True)"] + [
        f"torch.nn.functional.{name}(v1).sum().backward()" for name in ("relu6", "hardtanh", "hardswish", "hardsigmoid", "elu", "selu", "celu", "leaky_relu")],
    "numbers copied": ["v1 = torch.zeros(2)", "v1.copy_(3)", "v1.fill_(torch.tensor(4))"],
}


@pytest.mark.cpu
@pytest.mark.parametrize("about", FOUND)
def test_programs_that_once_differed(torch, about):
    import torch.utils.checkpoint  # noqa: F401
    from fuzz.program import Program, Step
    from fuzz.running import check

    steps = [Step(line.partition(": ")[2], line.partition(": ")[0][5:]) if line.startswith("with ") else Step(line) for line in FOUND[about]]
    assert check(Program(steps), torch, ampc) is None


def fuzz(*args):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])}
    got = subprocess.run([sys.executable, "-m", "fuzz", *map(str, args)], capture_output=True, text=True, env=env, cwd=HERE)
    assert got.returncode == 0, got.stdout[-6000:] + got.stderr[-2000:]
    return got.stdout


def test_programs_beside_torch(torch, on_gpu):
    """python -m fuzz --seed S --first N --programs 1, in this folder, repeats one that differs. Of a seed that was looked through, no
    difference is left without a reason. Drawn programs still find a corner in some 20,000, so one is told as a warning; two are an error."""
    if on_gpu:
        assert "0 unexplained" in fuzz("--programs", PROGRAMS // 10, "--seed", 31, "--jobs", 2, "--device", "cuda")
        return
    assert "0 unexplained" in fuzz("--programs", PROGRAMS // 2, "--seed", 31, "--jobs", 2)
    said = fuzz("--programs", PROGRAMS, "--seed", references.DRAWN, "--jobs", 2, "--allow", 1)
    if "0 unexplained" not in said:
        warnings.warn(said[-6000:])


def writer_of(torch, *lines):
    """A Writer in a program that has these lines, and the way to fill a template."""
    import random

    from fuzz.drawing import Unfit, Writer
    from fuzz.program import Step
    from fuzz.running import World

    world = World(torch)
    writer = Writer(random.Random(0), world)
    for line in lines:
        writer.seen = world.run(Step(line)).seen

    def fills(template):
        try:
            return writer.fill(template)
        except Unfit:
            return None

    return fills


LARGE = {
    "a dimension as long as a value": (["v1 = torch.tensor([2**40])"], ["torch.nn.functional.one_hot({small})", "torch.bincount({small}.abs())"]),
    "many ones that are expanded": (["v1 = torch.ones((1,) * 40)"], ["{x}.expand({bigger})", "{x}.broadcast_to({bigger})", "torch.expand_copy({x}, ({bigger}))"]),
    "three that broadcast": (["v1 = torch.ones(200, 1, 1)", "v2 = torch.ones(200, 1)", "v3 = torch.ones(200)"], ["torch.addcmul(v1, v2, v3)", "torch.where(v1 > 0, v2, v3)"]),
}


@pytest.mark.cpu
@pytest.mark.parametrize("about", LARGE)
def test_no_line_needs_much_memory(torch, about):
    lines, templates = LARGE[about]
    fills = writer_of(torch, *lines)
    for template in templates:
        assert not any(fills(template) for _ in range(20)), template
    assert writer_of(torch, "v1 = torch.tensor([2])")(templates[0].replace("v2", "v1").replace("v3", "v1"))


@pytest.mark.cpu
def test_empty_tensors_stay_small(torch):
    """A sum over no rows has as many elements as there are columns."""
    from fuzz.drawing import LARGEST, room_of

    assert room_of((0, 300)) == 300 and room_of((0, 300, 2)) == 600 > LARGEST and room_of(()) == 1


@pytest.mark.cpu
def test_a_seed_draws_the_same_programs(torch):
    """In another process, whose hashes of strings differ."""
    from fuzz.drawing import draw
    from fuzz.program import script

    ours, others = ([script(draw(torch, seed, i)[0]) for i in range(5)] for seed in (1, 2))
    said = fuzz("--show", "--programs", 5, "--seed", 1)
    assert ours != others and all(program in said for program in ours)


@pytest.mark.cpu
def test_a_difference_is_found_and_shrunk(torch):
    """A library that is torch but for one operator: its program comes down to a line of tensor and a line of that."""
    import torch.utils.checkpoint  # noqa: F401
    from fuzz.drawing import draw
    from fuzz.running import apart, check
    from fuzz.shrink import shrunk

    wrong = ModuleType("wrong")
    wrong.__dict__.update(torch.__dict__, exp=lambda x, **out: torch.exp(x, **out) * 1.01, __name__="wrong")

    def first():
        for index in range(400):
            program, expected = draw(torch, 1, index)
            found = check(program, torch, wrong, expected)
            if found is not None:
                return found, shrunk(found, torch, wrong)

    found, small = apart(first)  # torch on both sides: its modes are one thread's, and do not nest here
    assert found.kind == small.kind == "value" and len(small.program.steps) == 2 and "torch.exp(" in small.program.steps[1].source


@pytest.mark.cpu
def test_a_library_does_not_differ_from_itself(torch):
    from fuzz.drawing import draw
    from fuzz.running import apart, check

    def differing():
        programs = [draw(torch, 1, i) for i in range(100)]
        return [p.index for p, expected in programs if not any(s.context for s in p.steps) and check(p, torch, torch, expected)]

    assert apart(differing) == []
