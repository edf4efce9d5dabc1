"""Words that torch takes for an argument beside its documented name, and small parts of torch's modules that libraries ask for."""

import functools

import pytest
from test_corners import same

import ampc

MATRIX = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]]


def m(lib):
    return lib.tensor(MATRIX, dtype=lib.float64)


WORDS = """lib.pow(x, exponent=2) | x.pow(exponent=x) | lib.pow(2, exponent=x) | x.clone().pow_(exponent=3) | lib.pow(input=x, exponent=2.5)
lib.heaviside(x - 3, values=lib.ones(3, 3).double()) | (x - 3).heaviside(values=x) | lib.dot(x[0], tensor=x[1]) | x[0].dot(tensor=x[2])
lib.cholesky_solve(x, input2=x.tril()) | x.cholesky_solve(input2=x.triu(), upper=True) | lib.orgqr(lib.geqrf(x)[0], input2=lib.geqrf(x)[1])
lib.ormqr(lib.geqrf(x)[0], input2=lib.geqrf(x)[1], input3=x) | lib.ormqr(input=lib.geqrf(x)[0], input2=lib.geqrf(x)[1], input3=x.exp(), transpose=True)
lib.linalg.norm(input=x) | lib.linalg.norm(x, axis=1) | lib.linalg.norm(x, 'nuc', axis=(1, 0), keepdims=True) | lib.linalg.norm(input=x, ord='fro') | lib.linalg.vector_norm(input=x) | lib.linalg.lstsq(input=x, b=x.exp()).solution
lib.linalg.tensorsolve(x, other=x[0]) | lib.trace(input=x) | lib.multiply(x1=x, x2=x) | lib.lu(x, True, False, None)[0]
lib.softmax(x, 1, lib.float64) | x.softmax(0, lib.float32) | lib.log_softmax(x, 1, lib.float32) | x.log_softmax(1, lib.float64)
x.view(size=(1, 9)) | x.view(size=[9]) | x.clone().copy_(other=x.t()) | x.clone().copy_(other=x.t(), non_blocking=True)
lib.gather(x, 1, lib.tensor([[0, 2]]), sparse_grad=True) | x.gather(0, lib.tensor([[0, 2]]), sparse_grad=False) | x.clone().swapaxes_(axis0=0, axis1=1)
lib.tensor_split(x, sections=2)[1] | x.tensor_split(indices=[1], dim=1)[1] | lib.tensor_split(x, tensor_indices_or_sections=lib.tensor([1, 2]))[2]
lib.hsplit(x, indices=[1])[1] | x.hsplit(sections=3)[2] | lib.vsplit(x, sections=3)[1] | x.vsplit(indices=[2])[0] | x[None].dsplit(indices=[1])[1]
lib.from_dlpack(ext_tensor=lib.utils.dlpack.to_dlpack(x))"""


@pytest.mark.parametrize("text", [t.strip() for t in WORDS.replace("\n", "|").split("|")])
def test_words_that_torch_takes(text):
    same(lambda lib: eval(text, {"lib": lib, "x": m(lib)}), rtol=1e-6)


@pytest.mark.parametrize("text", """lib.pow(x, other=2) | lib.pow(x, exponents=2) | x.view(shape=(9,)) | lib.hsplit(x, parts=3) | lib.hsplit(x, 3, sections=3)
lib.linalg.norm(x, input=x) | lib.linalg.norm(inputs=x) | x.copy_(source=x) | lib.gather(x, 1, lib.tensor([[0]]), sparse=True) | lib.dot(x[0], tensors=x[0])
lib.tensor_split(x, sections=2, indices=[1]) | x.view(9, size=(9,)) | lib.softmax(x, 0, 3.5)""".replace("\n", "|").split("|"))
def test_wrong_words_are_refused_as_by_torch(text):
    def call(lib):
        return eval(text.strip(), {"lib": lib, "x": m(lib)})

    with pytest.raises(TypeError):
        call(ampc)
    same(call)


def test_an_error_names_what_was_given():
    x = ampc.ones(3)
    with pytest.raises(TypeError, match="unknown argument `exponents`; its signature is pow"):
        ampc.pow(x, exponents=2)
    with pytest.raises(TypeError, match="an argument was given twice, by other names: A, input"):
        ampc.linalg.norm(A=x, input=x)
    with pytest.raises(TypeError, match="unexpected keyword argument 'parts'"):
        ampc.hsplit(x, parts=3)


def test_bounds_by_their_names():
    ampc.manual_seed(0)
    assert set(ampc.empty(200).random_(to=2).tolist()) == {0.0, 1.0} == {v - 3 for v in ampc.empty(200).random_(**{"from": 3, "to": 5}).tolist()}
    drawn = ampc.empty(500).uniform_(to=4, **{"from": 3})
    assert 3 <= drawn.min() < 3.1 and 3.9 < drawn.max() < 4


def test_bernoulli_takes_a_chance_for_each_element():
    ampc.manual_seed(1)
    chances = ampc.tensor([0.0, 0.25, 1.0], dtype=ampc.float64)
    drawn = ampc.empty(4000, 3).bernoulli_(chances)
    assert drawn[:, 0].sum() == 0 and drawn[:, 2].sum() == 4000
    assert abs(drawn[:, 1].mean().item() - 0.25) < 5 * (0.25 * 0.75 / 4000) ** 0.5  # five standard deviations
    for wrong in (ampc.tensor([1.5], device="cpu"), ampc.tensor([float("nan")], device="cpu"), ampc.tensor([1], device="cpu"), 1.5):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            ampc.empty(3, device="cpu").bernoulli_(wrong)
        if not isinstance(wrong, float) and wrong.is_floating_point():
            with pytest.raises(RuntimeError, match="between 0 and 1"):
                ampc.bernoulli(wrong)
    for wrong in (1.5, -0.1, float("nan")):
        with pytest.raises(RuntimeError, match="`p` must be between 0 and 1"):
            ampc.bernoulli(chances, wrong)
    with pytest.raises(NotImplementedError, match="bernoulli: needs a floating point dtype, got"):
        ampc.bernoulli(ampc.tensor([0, 1]))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float16"])
def test_bernoulli_of_a_number_takes_the_shape_and_dtype_of_any_tensor(dtype):
    ampc.manual_seed(2)
    drawn = ampc.bernoulli(ampc.ones(4000, dtype=getattr(ampc, dtype)), 0.25)
    assert drawn.dtype is getattr(ampc, dtype) and drawn.shape == (4000,)
    assert abs(drawn.double().mean().item() - 0.25) < 5 * (0.25 * 0.75 / 4000) ** 0.5


def test_the_gradient_of_gather_is_dense():
    x = ampc.ones(2, 3, requires_grad=True)
    ampc.gather(x, 1, ampc.tensor([[0, 2]]), sparse_grad=True).sum().backward()
    assert x.grad.tolist() == [[1, 0, 1], [0, 0, 0]] and not x.grad.is_sparse


def test_out_and_requires_grad():
    out = ampc.zeros(2)
    assert ampc.ones(3, out=out, requires_grad=True) is out and out.requires_grad and out.tolist() == [1, 1, 1]


def test_torch_functional_is_a_module():
    import importlib

    module = importlib.import_module("ampc.functional")
    assert module is ampc.functional and module.F is ampc.nn.functional and module.Tensor is ampc.Tensor
    assert module.einsum("ij->j", ampc.ones(2, 3)).tolist() == [2, 2, 2]
    torch = pytest.importorskip("torch")
    assert not [name for name in torch.functional.__all__ if not hasattr(module, name)]
    with pytest.raises(NotImplementedError, match="complex"):
        module.stft(ampc.ones(8), 4)


def test_parts_of_modules():
    import importlib

    assert ampc.nn.modules.utils._ntuple(2)(3) == (3, 3)
    assert importlib.import_module("ampc.cuda.amp.autocast_mode").autocast is ampc.cuda.amp.autocast is ampc.cuda.amp.autocast_mode.autocast
    assert ampc.cpu.amp.autocast_mode.autocast is ampc.cpu.amp.autocast and ampc.cuda.amp.grad_scaler.GradScaler is ampc.cuda.amp.GradScaler
    assert ampc.cpu.set_device("cpu") is None and ampc.cpu.is_initialized() is True
    f = functools.partial(max)
    ampc.utils.set_module(f, "mine")
    assert f.__module__ == "mine"
    with pytest.raises(TypeError, match="name of a module"):
        ampc.utils.set_module(f, 3)
    collate = ampc.utils.data._utils.collate
    with pytest.raises(TypeError) as caught:
        collate.default_collate([object()])
    assert str(caught.value) == collate.default_collate_err_msg_format.format("object")
    assert ampc.get_device_module("cuda") is ampc.cuda and ampc.get_device_module("cpu:0") is ampc.cpu
    with pytest.raises(RuntimeError, match="mps"):
        ampc.get_device_module("mps")


@pytest.mark.parametrize("word", ["none", "mean", "sum", "elementwise_mean", "max", ""])
def test_numbers_of_reductions(word):
    same(lambda lib: lib.nn.functional._Reduction.get_enum(word))


def enabled(lib):
    cuda, attention = lib.backends.cuda, lib.nn.attention
    return [getattr(cuda, f"{kernel}_sdp_enabled")() for kernel in ("flash", "mem_efficient", "math", "cudnn")] + [
        [str(b) for b in attention._cur_sdpa_kernel_backends(*priority)] for priority in ((), (True,))]


def test_kernels_of_attention_that_are_allowed():
    def seen(lib, backends, **how):
        kernels = [getattr(lib.backends.cuda.SDPBackend, b) for b in backends]
        with lib.nn.attention.sdpa_kernel(kernels if len(kernels) != 1 else kernels[0], **how):
            inside = enabled(lib)
        return inside, enabled(lib)

    torch = pytest.importorskip("torch")
    torch.nn.attention  # noqa: B018
    both = ["MATH", "FLASH_ATTENTION"]
    for backends, how in ((["MATH"], {}), (both, {}), (both, {"set_priority": True}), (["CUDNN_ATTENTION"], {"set_priority": True}), ([], {})):
        assert seen(ampc, backends, **how) == seen(torch, backends, **how)
    for lib in (torch, ampc):
        assert lib.backends.cuda.SDPBackend is lib.nn.attention.SDPBackend
        for wrong in ("MATH", {lib.nn.attention.SDPBackend.MATH}, [1]):
            with pytest.raises(AssertionError if wrong != [1] or lib is ampc else TypeError), lib.nn.attention.sdpa_kernel(wrong):
                raise TypeError("torch takes a list of anything")


@pytest.mark.filterwarnings("ignore:.*sdp_kernel:FutureWarning")
def test_switches_of_attention():
    def seen(lib):
        for kernel in ("flash", "mem_efficient", "math", "cudnn"):
            switch = getattr(lib.backends.cuda, f"enable_{kernel}_sdp")
            switch(False)
            yield enabled(lib)[:4]
            switch(True)
            with pytest.raises((TypeError, RuntimeError)):  # torch has either
                switch(1)
        with lib.backends.cuda.sdp_kernel(enable_flash=False, enable_cudnn=False):
            yield enabled(lib)[:4]
        yield enabled(lib)[:4]

    assert list(seen(ampc)) == list(seen(pytest.importorskip("torch")))


def test_masks_of_no_masks():
    from ampc.nn.attention.flex_attention import and_masks, or_masks

    i = [ampc.tensor([n]) for n in range(4)]
    assert and_masks()(*i).item() is True and or_masks()(*i).item() is False
    both = and_masks(lambda b, h, q, k: q >= 2, lambda b, h, q, k: k < 3)(*i)
    assert both.tolist() == [False] and both.dtype == ampc.bool


@pytest.mark.parametrize("kind", ["ZeroPad1d", "ZeroPad2d", "ConstantPad1d", "ConstantPad3d"])
@pytest.mark.parametrize("padding", [(1, 2), (1, 0, 2, 1), (1, 1, 0, 1, 2, 2), ()], ids=str)
def test_padding_of_other_dimensions(kind, padding):
    def call(lib):
        return getattr(lib.nn, kind)(padding, *([0.5] if "Constant" in kind else []))(lib.arange(24.0).view(1, 2, 3, 4))

    same(call)


def test_gains_of_transposed_convolutions():
    for n in (1, 2, 3):
        same(lambda lib, n=n: float(lib.nn.init.calculate_gain(f"conv_transpose{n}d")))


def test_pack_hooks_may_take_values():
    x = ampc.tensor([0.5, 1.0], requires_grad=True)
    kept = []

    def pack(t):
        kept.append(ampc.is_grad_enabled())
        return t.cpu().numpy().copy()

    with ampc.autograd.graph.saved_tensors_hooks(pack, ampc.tensor):
        assert ampc.is_grad_enabled()
        y = (x * 2).exp()
        assert ampc.is_grad_enabled()
    y.sum().backward()
    assert kept and not any(kept)
    assert x.grad.allclose(2 * (2 * x.detach()).exp())


def test_the_format_of_old_files_is_not_written(tmp_path):
    with pytest.warns(UserWarning, match="no effect"):
        ampc.save({"a": ampc.ones(2)}, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    assert ampc.load(tmp_path / "x.pt")["a"].tolist() == [1, 1]


def test_the_default_device_by_its_name():
    before = ampc.get_default_device()
    try:
        ampc.set_default_device(device="meta")
        assert ampc.ones(2).is_meta
    finally:
        ampc.set_default_device(device=before)
    assert ampc.get_default_device() == before
