"""Arguments that are honoured, checked or refused, never ignored; tensors that are written into; logits made some rows at a time."""

import warnings

import numpy as np
import pytest
from test_checkpoint import Cube
from test_corners import same

import ampc


@pytest.mark.parametrize("call", [
    lambda lib: lib.func.vmap(lambda x: x, randomness="no")(lib.ones(2)), lambda lib: lib.repeat_interleave(lib.ones(2), 2, output_size=3),
    lambda lib: lib.repeat_interleave(lib.ones(2, 2), lib.tensor([1, 2]), 1, output_size=3), lambda lib: lib.linalg.svdvals(lib.ones(2, 2, device="cpu"), driver="gesvd"),
    lambda lib: lib.Tensor(2, dtype=lib.float64), lambda lib: lib.autograd.functional.jacobian(lambda x: x, lib.ones(2), strategy="no"),
    lambda lib: lib.autograd.functional.jacobian(lambda x: x, lib.ones(2), strategy="forward-mode"),
    lambda lib: lib.nn.Linear(2, 2).to(memory_format="channels_last")])
def test_what_was_read_and_ignored_is_checked(call):
    same(call)


def test_arguments_without_a_way_are_refused():
    F = ampc.nn.functional
    for window in (ampc.hann_window, ampc.hamming_window, ampc.blackman_window, ampc.bartlett_window, ampc.kaiser_window):
        with pytest.raises(ValueError, match="strided"):
            window(4, layout="sparse_coo")
        assert ampc.equal(window(4, layout=window(4).layout), window(4))
    with pytest.raises(NotImplementedError, match="current stream"):
        ampc.ones(2).to_device("cpu", stream=1)
    w = ampc.ones(1, requires_grad=True)
    scheduler = ampc.optim.lr_scheduler.ConstantLR(ampc.optim.SGD([w], lr=1.0))
    with pytest.raises(TypeError, match="takes no epoch"):
        ampc.optim.lr_scheduler.ChainedScheduler([scheduler]).step(3)
    with pytest.warns(FutureWarning, match="only_inputs"):
        ampc.autograd.grad(w * 2, w, only_inputs=False)
    with pytest.warns(UserWarning, match="eps"):
        F.gumbel_softmax(ampc.zeros(3), eps=1e-3)
    with pytest.raises(TypeError, match="types differ"):
        ampc.testing.assert_close(ampc.nn.Parameter(ampc.ones(2)), ampc.ones(2), allow_subclasses=False)


def test_vmap_draws_the_same_numbers_for_all_where_it_is_told_to():
    drawn = {kind: ampc.func.vmap(lambda x: x + ampc.rand(3), randomness=kind)(ampc.zeros(4, 3)) for kind in ("same", "different")}
    assert ampc.equal(drawn["same"], drawn["same"][:1].expand(4, 3)) and not ampc.equal(drawn["different"][0], drawn["different"][1])


def test_gradgradcheck_weighs_by_what_is_given():
    x = ampc.tensor([0.5, -0.3], dtype=ampc.float64, requires_grad=True)
    seen = []

    class Watched(Cube):
        @staticmethod
        def backward(ctx, g):
            seen.append(g.detach().tolist())
            return Cube.backward(ctx, g)

    assert ampc.autograd.gradgradcheck(Watched.apply, x, ampc.tensor([2.0, 7.0], dtype=ampc.float64))
    assert [2.0, 7.0] in seen


@pytest.mark.parametrize("call", [
    lambda lib: lib.cat([lib.ones(2), lib.ones(2)], out=lib.zeros(4, dtype=lib.int64)), lambda lib: lib.hstack([lib.ones(2)], out=lib.zeros(2, dtype=lib.int64)),
    lambda lib: lib.add(lib.ones(2), 1, out=lib.zeros(2, dtype=lib.int64)), lambda lib: lib.ones(4).narrow(0, lib.tensor(1.0), 2),
    lambda lib: lib.fill_(lib.ones(2), 3), lambda lib: lib.ones(2).fill_(value=3), lambda lib: lib.ones(2).fill_(3, value=3), lambda lib: lib.ones(2).fill_(valu=3),
    lambda lib: lib.zero_(lib.ones(2)), lambda lib: lib.resize_as_(lib.ones(4), lib.ones(2, 2)), lambda lib: lib.negative_(lib.ones(2)),
    lambda lib: lib.bernoulli(lib.tensor([0.0, 1.0]), out=lib.zeros(2, dtype=lib.int64)), lambda lib: lib.randn(3, out=lib.zeros(3, dtype=lib.int64), dtype=lib.float32),
    lambda lib: lib.pca_lowrank(lib.ones(3, 2), q=3), lambda lib: lib.pca_lowrank(lib.ones(3, 2), niter=-1)])
def test_writes_into_what_is_given(call):
    torch = pytest.importorskip("torch")
    def run(lib):
        try:
            return call(lib).tolist()
        except Exception as error:
            return error

    theirs, ours = run(torch), run(ampc)
    assert isinstance(ours, type(theirs)) if isinstance(theirs, Exception) else ours == theirs


def test_random_numbers_into_what_is_given():
    for call in (lambda out: ampc.randn(3, out=out), lambda out: ampc.rand((3,), out=out), lambda out: ampc.randint(5, (3,), out=out),
                 lambda out: ampc.randperm(3, out=out.long())):
        out = ampc.full((3,), ampc.nan, dtype=ampc.float64) if call(ampc.zeros(3)).is_floating_point() else ampc.full((3,), -1)
        ampc.manual_seed(3)
        assert call(out).isfinite().all() and call(out).shape == (3,)
    out = ampc.zeros(2, dtype=ampc.float64)
    assert ampc.randn(2, out=out) is out and out.abs().sum() > 0


def test_what_is_overwritten_has_a_gradient_of_zeros():
    torch = pytest.importorskip("torch")
    for write in (lambda lib, y: y.fill_(2.0), lambda lib, y: y.zero_(), lambda lib, y: y.copy_(lib.ones(3)), lambda lib, y: y.copy_(y.flip(0) * 2),
                  lambda lib, y: y[:2].fill_(5.0), lambda lib, y: lib.fill(y, 2.0), lambda lib, y: lib.bernoulli(y)):
        grads = []
        for lib in (torch, ampc):
            x = lib.tensor([0.25, 0.5, 0.75], requires_grad=True)
            y = x * 1
            z = write(lib, y)
            grads.append(lib.autograd.grad((z.sum() if z.numel() == 3 else y.sum()), x)[0].tolist())
        assert grads[0] == grads[1]
    x, v = ampc.ones(3, requires_grad=True), ampc.tensor(2.0, requires_grad=True)
    y = (x * 1).fill_(v)
    assert [g.tolist() for g in ampc.autograd.grad((y * ampc.arange(3.0)).sum(), (x, v))] == [[0.0] * 3, 3.0]


def test_singular_values_from_random_directions():
    x = ampc.randn(2, 30, 4, dtype=ampc.float64) @ ampc.randn(4, 20, dtype=ampc.float64)
    for A in (x, x.transpose(-2, -1)):
        for U, S, V in (ampc.svd_lowrank(A), ampc.svd_lowrank(A + 3, q=5, M=ampc.full((A.shape[-2], A.shape[-1]), 3.0, dtype=ampc.float64))):
            assert (U * S.unsqueeze(-2) @ V.transpose(-2, -1) - A).abs().max() < 1e-11
            assert (S[..., :4] - ampc.linalg.svdvals(A)[..., :4]).abs().max() < 1e-11
    rows = ampc.randn(50, 3, dtype=ampc.float64) * ampc.tensor([5.0, 1.0, 0.1]) + 7
    V = ampc.pca_lowrank(rows, 2)[2]
    exact = ampc.linalg.svd(rows - rows.mean(0), False)[2][:2].T
    assert ((V * exact).sum(0).abs() - 1).abs().max() < 1e-3
    y = ampc.randn(4, 3, dtype=ampc.float64, requires_grad=True)
    ampc.svd_lowrank(y, 3)[1].sum().backward()
    U, _, Vh = ampc.linalg.svd(y.detach(), False)
    assert (y.grad - U @ Vh).abs().max() < 1e-10


@pytest.mark.parametrize("options", [{"batch_chunk_size": 3}, {"batch_chunk_size": 100}, {}, {"chunking_method": "aspect_ratio:4"}, {"chunking_method": None}])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_logits_some_rows_at_a_time(options, reduction):
    torch = pytest.importorskip("torch")
    source = np.random.default_rng(1)
    x, w, b, c = source.standard_normal((7, 4)), source.standard_normal((9, 4)), source.standard_normal(9), source.random(9)
    t = np.array([0, 8, 3, 3, -1, 2, 5])

    def run(lib, **more):
        leaves = [lib.tensor(a, requires_grad=True) for a in (x, w, b)]
        loss = lib.nn.functional.linear_cross_entropy(*leaves[:2], lib.tensor(t), linear_bias=leaves[2], weight=lib.tensor(c), ignore_index=-1,
                                                      reduction=reduction, **more)
        return [np.array(v.tolist()) for v in (loss, *lib.autograd.grad((loss * loss).sum(), leaves))]

    ours = run(ampc, options=ampc.nn.LinearCrossEntropyOptions(**options))
    for mine, whole, theirs in zip(ours, run(ampc), run(torch)):
        np.testing.assert_allclose(mine, whole, rtol=1e-12)
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_logits_some_rows_at_a_time_under_autocast():
    layer = ampc.nn.LinearCrossEntropyLoss(16, 50, options=ampc.nn.LinearCrossEntropyOptions(batch_chunk_size=5))
    x, t = ampc.randn(12, 16, requires_grad=True), ampc.randint(0, 50, (12,))
    found = []
    for options in (layer.options, None):
        layer.options = options
        with ampc.autocast("cpu", dtype=ampc.bfloat16):
            loss = layer(x, t)
        found.append((loss, *ampc.autograd.grad(loss, (x, layer.linear.weight))))
    for mine, whole in zip(*found):
        assert mine.dtype is whole.dtype and (mine - whole).abs().max() <= 0.02 * whole.abs().max()


@pytest.mark.parametrize("options", [{"chunking_method": "half"}, {"chunking_method": "aspect_ratio:0"}, {"acc_policy": "no"}, {"batch_chunk_size": 0}, {"acc_dtype": 3},
                                     {"batch_chunk_size": 5, "chunking_method": "aspect_ratio:4"}])
def test_options_of_rows_at_a_time(options):
    same(lambda lib: lib.nn.functional.linear_cross_entropy(lib.ones(7, 4), lib.ones(9, 4), lib.zeros(7, dtype=lib.int64), options=lib.nn.LinearCrossEntropyOptions(**options)))


def test_gradcheck_of_backwards_that_differ():
    """nondet_tol says how far two backwards may be apart; fast_mode looks at one slope of each input, and still sees a wrong gradient."""
    times = []

    class Drifting(ampc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            times.append(0)
            return g * 2 + 1e-7 * len(times)

    class Wrong(Drifting):
        @staticmethod
        def backward(ctx, g):
            return g * 3

    x = ampc.tensor([0.5, -0.3], dtype=ampc.float64, requires_grad=True)
    with pytest.raises(ampc.autograd.GradcheckError, match="two backwards differ"):
        ampc.autograd.gradcheck(Drifting.apply, x)
    assert ampc.autograd.gradcheck(Drifting.apply, x, nondet_tol=1e-6) and not ampc.autograd.gradcheck(Drifting.apply, x, raise_exception=False)
    for fast in (True, False):
        assert ampc.autograd.gradcheck(lambda x: (x * x).sin(), x, fast_mode=fast) and ampc.autograd.gradgradcheck(lambda x: x ** 3, x, fast_mode=fast)
        assert not ampc.autograd.gradcheck(Wrong.apply, x, fast_mode=fast, raise_exception=False)


def test_fast_gradcheck_moves_no_element_by_more_than_eps():
    kinks = ampc.tensor([-1.0, 1.0, 3.0], dtype=ampc.float64) * 2e-3  # an element lies 1.1 eps from its own
    x = (kinks + 1.1e-3).detach().requires_grad_()
    assert ampc.autograd.gradcheck(lambda x: (x - kinks).relu(), (x,), eps=1e-3, fast_mode=True)


def test_old_name_of_grad_tensors():
    x = ampc.ones(2, requires_grad=True)
    with pytest.warns(FutureWarning, match="grad_tensors"):
        ampc.autograd.backward(x * 2, grad_variables=ampc.tensor([1.0, 3.0]))
    assert x.grad.tolist() == [2.0, 6.0]
    with pytest.raises(RuntimeError, match="both"), pytest.warns(FutureWarning):
        ampc.autograd.backward(x * 2, ampc.ones(2), grad_variables=ampc.ones(2))


def test_arguments_of_gradients():
    x = ampc.ones(2, dtype=ampc.float64, requires_grad=True)
    check, twice = ampc.autograd.gradcheck, ampc.autograd.gradgradcheck
    assert check(lambda a: a * a, x, check_undefined_grad=False, check_grad_dtypes=True, check_backward_ad=True, masked=False)
    assert twice(lambda a: a * a * a, x, gen_non_contig_grad_outputs=True, check_rev_over_rev=True, check_fwd_over_rev=False, masked=True)
    for f, options, kind in ((check, {"check_backward_ad": False}, AssertionError), (check, {"check_forward_ad": True}, NotImplementedError),
                             (check, {"check_batched_grad": True}, NotImplementedError), (twice, {"check_rev_over_rev": False}, AssertionError)):
        with pytest.raises(kind, match="check"):
            f(lambda a: a * a, x, **options)
    with pytest.raises(ValueError, match="allow_unused"):
        ampc.autograd.grad((x * x).sum(), x, materialize_grads=True, allow_unused=False)
    for run in (lambda: (x * x).backward([1.0, 1.0]), lambda: ampc.autograd.grad(x * x, x, 3 * [1.0])):
        with pytest.raises(TypeError, match="got float"):
            run()


def test_a_warning_reaches_code_without_a_module_name():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec("f(x)", {"f": ampc.nn.functional.softmax, "x": ampc.ones(2)})
    assert len(told) == 1 and "dim" in str(told[0].message)


def test_generators_share_or_copy_their_state():
    g = ampc.Generator().manual_seed(3)
    ampc.rand(5, generator=g)
    assert 0 <= g.seed() == g.initial_seed() < 2**64
    for wrong, kind in (("a", RuntimeError), (1.5, RuntimeError), (None, RuntimeError), (True, RuntimeError), (2**64, ValueError)):
        with pytest.raises(kind, match="seed"):
            g.manual_seed(wrong)
    for state, kind in ((3, TypeError), (ampc.zeros(16), TypeError), (ampc.zeros(16, dtype=ampc.int64), TypeError), (ampc.zeros(3, dtype=ampc.uint8), RuntimeError)):
        with pytest.raises(kind, match="state"):
            g.set_state(state)
    g.manual_seed(4)
    copied, shared = g.clone_state(), g.graphsafe_get_state()
    first = ampc.rand(4, generator=g)
    assert ampc.equal(ampc.rand(4, generator=copied), first) and not ampc.equal(ampc.rand(4, generator=shared), first)
    other = ampc.Generator()
    other.graphsafe_set_state(g)
    assert ampc.equal(other.get_state(), g.get_state()) and ampc.equal(shared.get_state(), g.get_state())


WRONG = {
    "scores of fewer samples than labels": (lambda lib: lib.nn.functional.cross_entropy(lib.ones(3, 4), lib.tensor([0, 1])), "`target` names classes of 2 samples, and there are scores of 3"),
    "one sample, several labels": (lambda lib: lib.nn.functional.nll_loss(lib.ones(4), lib.tensor([0, 1])), "classes of 2 samples, and there are scores of one"),
    "labels of int32": (lambda lib: lib.nn.functional.cross_entropy(lib.ones(2, 4), lib.tensor([0, 1], dtype=lib.int32)), r"got int32; convert it with \.long\(\)"),
    "indices that are floats": (lambda lib: lib.nn.Embedding(4, 2)(lib.ones(2)), r"got float32; convert it with \.long\(\)"),
    "floats between brackets": (lambda lib: lib.ones(3)[lib.tensor([0.5])], r"got float32; convert them with \.long\(\)"),
    "a condition of integers": (lambda lib: lib.ones(2).masked_fill(lib.tensor([1, 0]), 0.0), r"got int64; convert it with \.bool\(\)"),
    "an array": (lambda lib: lib.nn.functional.linear(np.ones((2, 2), np.float32), lib.ones(2, 2)), r"got numpy\.ndarray; make one with ampc\.tensor\(\)"),
    "a list": (lambda lib: lib.nn.functional.linear([1.0, 2.0], lib.ones(2, 2)), r"got list; make one with ampc\.tensor\(\)"),
    "a dtype's name": (lambda lib: lib.zeros(3, dtype="float32"), r"got 'float32'; they are .*ampc\.float32"),
    "a size that was divided": (lambda lib: lib.nn.Linear(8 / 2, 2), "must hold integers, got float .*a // b"),
    "a copy of another shape": (lambda lib: lib.zeros(2, 2).copy_(lib.ones(3)), r"copy_: values of shape \[3\] neither have the target's shape \[2, 2\]"),
    "a mask of another size": (lambda lib: lib.nn.functional.scaled_dot_product_attention(*[lib.zeros(1, 2, 3, 4)] * 3, attn_mask=lib.zeros(5, 5)),
                               r"`attn_mask` \[5, 5\] does not broadcast to the scores \[\.\.\., 3, 3\]"),
    "a fraction into integers": (lambda lib: lib.tensor([1, 2]).add_(0.5), "target is int64 and cannot hold a result of float32"),
    "a list of modules": (lambda lib: lib.nn.Sequential([lib.nn.Linear(1, 1)]), r"write Sequential\(\*modules\)"),
    "an optimizer of a result": (lambda lib: lib.optim.SGD([lib.ones(3, requires_grad=True) * 2], lr=0.1), r"detach\(\)\.requires_grad_\(\)"),
    "an image smaller than the window": (lambda lib: lib.nn.Conv2d(1, 4, 3)(lib.ones(1, 1, 5, 2)), "larger than the 2 values of dimension -1"),
    "a file that is not there": (lambda lib: lib.load("missing.pt"), "No such file or directory in the folder .*missing.pt"),
}


@pytest.mark.parametrize("about", WRONG)
def test_a_newcomers_mistake_is_told_with_what_to_do(about):
    """And has torch's type of exception."""
    torch = pytest.importorskip("torch")
    call, said = WRONG[about]
    with pytest.raises(Exception) as theirs:
        call(torch)
    with pytest.raises(theirs.type, match=said):
        call(ampc)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("label", [[1], 1, [], [[1]]])
def test_the_label_of_one_sample_may_have_a_dimension(label, reduction):
    same(lambda lib: lib.nn.functional.cross_entropy(lib.tensor([0.5, 0.25, 1.0]), lib.tensor(label, dtype=lib.int64), reduction=reduction).mul(1024).round())



def test_that_label_has_a_gradient():
    """torch's backward fails here."""
    x = ampc.tensor([0.5, 0.25, 1.0], requires_grad=True)
    plain, = ampc.autograd.grad(ampc.nn.functional.cross_entropy(x, ampc.tensor(1)), x)
    again, = ampc.autograd.grad(ampc.nn.functional.cross_entropy(x, ampc.tensor([1])), x)
    assert ampc.equal(plain, again) and plain.abs().sum() > 0


@pytest.mark.cpu
@pytest.mark.parametrize("loss, classes", [("multi_margin_loss", [-1, 0]), ("multi_margin_loss", [0, 4]), ("multilabel_margin_loss", [[-2, 0, 0, 0]] * 2)])
def test_classes_of_margins_out_of_range(loss, classes):
    with pytest.raises(RuntimeError, match=f"{loss}: classes must lie between (0|-1) and 3"):
        getattr(ampc.nn.functional, loss)(ampc.zeros(2, 4), ampc.tensor(classes))


OLD_ORDER = {
    "add": lambda lib, v, m: lib.add(v, 2, v), "add_": lambda lib, v, m: v.clone().add_(np.float64(-0.5), v), "sub": lambda lib, v, m: v.sub(3.0, v * v),
    "sub_": lambda lib, v, m: v.clone().sub_(2, v * v), "addcmul": lambda lib, v, m: v.addcmul(0.5, v, v), "addcmul_": lambda lib, v, m: v.clone().addcmul_(2, v, v + 1),
    "addcdiv": lambda lib, v, m: lib.addcdiv(v, -1, v, v + 3), "addcdiv_": lambda lib, v, m: v.clone().addcdiv_(-0.1, v, v + 3),
    "addmm, both": lambda lib, v, m: lib.addmm(2, m, 3, m, m + 1), "addmm, one": lambda lib, v, m: lib.addmm(2, m, m, m), "addmm, a method": lambda lib, v, m: m.addmm(2, 3, m, m + 1),
    "addmm_": lambda lib, v, m: m.clone().addmm_(0.5, m, m), "addmv": lambda lib, v, m: lib.addmv(2, v, 3, m, v), "addr": lambda lib, v, m: lib.addr(2, m, 3, v, v + 1),
    "addbmm": lambda lib, v, m: lib.addbmm(2, m, 3, m[None], m[None]), "baddbmm_": lambda lib, v, m: m[None].clone().baddbmm_(2, 3, m[None], m[None]),
}


@pytest.mark.parametrize("name", OLD_ORDER)
def test_numbers_among_the_tensors_as_older_scripts_have_them(torch, name):
    """Optimizers of older scripts write exp_avg.addcmul_(1 - beta, grad, grad)."""
    seen = []
    for lib in (ampc, torch):
        v, m = lib.tensor([1.0, -2.0]), lib.tensor([[1.0, 2.0], [3.0, -4.0]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls the order deprecated
            seen.append(OLD_ORDER[name](lib, v, m).tolist())
    assert seen[0] == seen[1]


def test_what_is_no_old_order_is_refused():
    v = ampc.ones(2)
    for call in (lambda: v.add(1, 2, v), lambda: v.add(v, v, v), lambda: v.addcmul(1, 2, v, v), lambda: v.addcmul(v, v, "2", v), lambda: ampc.addmm(1, v, 2, v, 3, v)):
        with pytest.raises(TypeError, match="positional arguments given"):
            call()


@pytest.mark.parametrize("call", [
    lambda lib: lib.zeros(1, dtype=lib.promote_types(type1=lib.int32, type2=lib.float16)),
    lambda lib: lib.tensor([len(list(lib.nn.Sequential(*[lib.nn.ReLU()] * 3).modules(**k))) for k in ({}, {"remove_duplicate": True}, {"remove_duplicate": False})])])
def test_words_for_arguments_are_torchs(call):
    same(call)


def test_words_for_the_device():
    with ampc.cuda.device(device=None):
        pass
    with pytest.raises(ValueError, match="cpu"):
        ampc.cuda.set_device(device="cpu")


def test_gradcheck_takes_inputs_of_any_layout():
    x = ampc.arange(12, dtype=ampc.float64).view(3, 4).t().requires_grad_()
    weights = ampc.arange(12, dtype=ampc.float64).view(4, 3) / 7
    for fast in (False, True):
        assert ampc.autograd.gradcheck(lambda x: (x * x * weights).sum(0), (x,), fast_mode=fast)
        assert not ampc.autograd.gradcheck(lambda x: x * x.detach() * weights, (x,), fast_mode=fast, raise_exception=False)
