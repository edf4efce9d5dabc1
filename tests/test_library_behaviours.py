"""What other packages lean on beside the operators: names that pickles hold, bases that they derive from, small behaviours."""

import pickle
import warnings

import numpy as np
import pytest
from where import ON_GPU

import ampc
from ampc import nn
from ampc.nn import functional as F
from ampc.nn.modules import activation, batchnorm, channelshuffle, dropout, instancenorm, linear, padding, pooling, utils

torch = None
try:
    import torch
except ImportError:
    pass


def shared(y):
    """For each dimension, whether all entries along it are the same."""
    return [bool((y == y.select(d, 0).unsqueeze(d)).all()) for d in range(y.ndim)]


@pytest.mark.parametrize("name, shape, want", [
    ("dropout1d", (40, 50), [False, True]), ("dropout1d", (10, 20, 30), [False, False, True]),
    ("dropout2d", (40, 50), [False, False]), ("dropout2d", (10, 20, 30), [False, False, True]), ("dropout2d", (10, 20, 3, 4), [False, False, True, True]),
    ("dropout2d", (10, 20, 3, 4, 2), [False, False, True, True, True]),
    ("dropout3d", (400,), [False]), ("dropout3d", (40, 50), [False, True]), ("dropout3d", (40, 5, 6), [False, True, True]), ("dropout3d", (40, 5, 6, 7), [False, True, True, True]),
    ("dropout3d", (10, 20, 3, 4, 5), [False, False, True, True, True]), ("dropout3d", (40, 2, 3, 4, 5, 6), [False, True, True, True, True, True])])
def test_which_elements_channel_dropout_drops_together(name, shape, want):
    ampc.manual_seed(0)
    module = getattr(nn, name.replace("dropout", "Dropout"))(0.5)
    assert shared(module(ampc.ones(shape))) == want == shared(getattr(F, name)(ampc.ones(shape), 0.5, True))
    if torch is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert shared(getattr(torch.nn.functional, name)(torch.ones(shape), 0.5, True)) == want


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_what_is_dropped_is_multiplied_by_zero(p):
    """So an inf or nan is not hidden, neither in forward nor in a gradient that GradScaler looks at."""
    x = ampc.tensor([float("inf"), float("nan"), -2.0, 3.0]).repeat(100).requires_grad_()
    y = F.dropout(x, p)
    dropped = (y[2::4] == 0).cpu().numpy()
    assert y[1::4].isnan().all() and dropped.any() and dropped.all() == (p == 1)
    assert (y[0::4].isnan().any() and not y[0::4].isfinite().any()) and y[3::4].isfinite().all()
    y.backward(ampc.full((400,), float("inf")))
    assert (x.grad[2::4].isnan().cpu().numpy() == dropped).all() and not x.grad.isfinite().any()
    if torch is not None:
        z = torch.nn.functional.dropout(torch.full((100,), float("inf")), p)
        assert z.isnan().any() and not z.isfinite().any()


@pytest.mark.parametrize("name, shape", [("dropout1d", (3,)), ("dropout1d", (2, 2, 2, 2)), ("dropout2d", (3,)), ("feature_dropout", (3,))])
def test_ranks_that_channel_dropout_refuses(name, shape):
    with pytest.raises(RuntimeError, match=f"{name}: needs"):
        getattr(F, name)(ampc.ones(shape), 0.5, True)


def test_a_sampler_of_more_than_memory_holds():
    draws = iter(ampc.utils.data.RandomSampler(range(10), replacement=True, num_samples=int(1e12)))
    assert {next(draws) for _ in range(9000)} == set(range(10))
    assert len(list(ampc.utils.data.RandomSampler(range(3), replacement=True, num_samples=9000))) == 9000


def test_types_by_name():
    x = ampc.ones(2)
    there = "torch.cuda." if ON_GPU else "torch."
    assert x.type() == there + "FloatTensor" and x.long().type() == there + "LongTensor"
    for kind in (ampc.DoubleTensor, "torch.DoubleTensor", "ampc.DoubleTensor", ampc.float64):
        assert x.type(kind).dtype is ampc.float64
    assert x.long().type(x.type()).dtype is ampc.float32 and x.type(x.type()) is x
    assert x.long().type(ampc.Tensor).dtype is x.type(ampc.Tensor).dtype is ampc.float32
    for wrong in ("torch.OddTensor", "DoubleTensor", "torch.complexTensor"):
        with pytest.raises(ValueError, match="invalid type"):
            x.type(wrong)


def test_a_view_by_keyword():
    assert ampc.ones(2, 2).view(dtype=ampc.int32).tolist() == [[0x3F800000] * 2] * 2
    assert ampc.ones(3).view(dtype=ampc.uint8).shape == (12,)


def test_autocast_of_devices_that_it_does_not_serve():
    with ampc.autocast("cpu"):
        assert ampc.is_autocast_enabled("cpu") is True
        for device in ("mps", "xpu", "hpu", "xla", "mtia"):
            assert ampc.is_autocast_enabled(device) is False
    with pytest.raises(RuntimeError, match="not the name of a device"):
        ampc.is_autocast_enabled("toaster")


@pytest.mark.parametrize("name", ["std", "var"])
def test_no_degrees_of_freedom(name):
    x = ampc.ones(3, 1, requires_grad=True)
    y = getattr(ampc, name)(x, dim=1)
    assert y.shape == (3,) and y.isnan().all()
    y.sum().backward()
    assert x.grad.isnan().all()
    assert np.isnan(getattr(ampc, name)(ampc.ones(2), dim=0, correction=3).item()) and np.isnan(getattr(ampc, name)(ampc.ones(0)).item())


def test_what_a_tensor_is_not():
    x = ampc.ones(2)
    for name in ["is_xpu", "is_mps", "is_quantized", "is_sparse", "is_sparse_csr", "is_mkldnn", "is_meta", "is_ipu", "is_xla", "is_vulkan", "is_nested", "is_mtia", "is_maia", "is_cpu" if ON_GPU else "is_cuda"]:
        assert getattr(x, name) is False, name
    assert (x.is_cuda if ON_GPU else x.is_cpu) is True


NAMES = [(activation, "MultiheadAttention"), (batchnorm, "_BatchNorm"), (batchnorm, "_NormBase"), (channelshuffle, "ChannelShuffle"), (dropout, "_DropoutNd"),
         (instancenorm, "_InstanceNorm"), (linear, "NonDynamicallyQuantizableLinear"), (padding, "_ConstantPadNd"), (pooling, "_MaxPoolNd"), (pooling, "_AvgPoolNd"),
         (pooling, "_AdaptiveAvgPoolNd"), (pooling, "_AdaptiveMaxPoolNd"), (utils, "_pair"), (utils, "_triple")]


@pytest.mark.parametrize("module, name", NAMES, ids=[n for _, n in NAMES])
def test_paths_of_modules(module, name):
    found = getattr(module, name)
    assert found.__module__ == module.__name__ and found.__name__ == name


def test_bases_say_what_kind_a_module_is():
    assert isinstance(nn.BatchNorm2d(2), batchnorm._BatchNorm) and isinstance(nn.InstanceNorm2d(2), batchnorm._NormBase)
    assert not isinstance(nn.InstanceNorm2d(2), batchnorm._BatchNorm)  # what freezes batch norms leaves it alone
    assert isinstance(nn.MaxPool2d(2), pooling._MaxPoolNd) and isinstance(nn.Dropout2d(), dropout._DropoutNd)
    assert type(nn.MultiheadAttention(4, 2).out_proj) is linear.NonDynamicallyQuantizableLinear


def test_a_norm_that_checks_by_its_own_rule():
    class Norm(batchnorm._BatchNorm):
        def _check_input_dim(self, input):
            assert input.ndim == 6

    assert Norm(2)(ampc.randn(3, 2, 1, 2, 1, 2)).shape == (3, 2, 1, 2, 1, 2)
    with pytest.raises(ValueError, match="expected 4 dimensions"):
        nn.BatchNorm2d(2)._check_input_dim(ampc.ones(2, 2))


def test_attention_pickles():
    kept = pickle.loads(pickle.dumps(nn.MultiheadAttention(4, 2)))
    assert type(kept) is nn.MultiheadAttention and kept.__class__.__module__ == "ampc.nn.modules.activation"


def test_numbers_for_each_dimension():
    assert utils._single(3) == (3,) and utils._pair(3) == (3, 3) and utils._triple([1, 2, 3]) == (1, 2, 3) and utils._quadruple(0) == (0,) * 4
    assert utils._ntuple(5)(1) == (1,) * 5
    assert utils._reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    assert utils._list_with_default([None, 3], [5, 6, 7]) == [6, 3] and utils._list_with_default(4, [1]) == 4
    with pytest.raises(ValueError, match="at least 3"):
        utils._list_with_default([None, None], [1, 2])
    state = nn.Sequential(nn.Linear(1, 1)).state_dict(prefix="module.")
    utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert sorted(state) == ["0.bias", "0.weight"]


def test_schedulers_derive_from_the_older_name():
    from ampc.optim.lr_scheduler import _LRScheduler

    class Halves(_LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    optimizer = ampc.optim.SGD([ampc.ones(1, requires_grad=True)], lr=1.0)
    schedule = Halves(optimizer)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.5] and isinstance(ampc.optim.lr_scheduler.StepLR(optimizer, 1), _LRScheduler)


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y


@pytest.mark.parametrize("make", ["ampc", "torch"])
def test_classes_that_a_file_may_hold(make, tmp_path):
    if make == "torch":
        library = pytest.importorskip("torch")
    else:
        library = ampc
    library.save({"a": Point(library.arange(3), {1, 2})}, tmp_path / "p.pt")
    with pytest.raises(pickle.UnpicklingError, match="weights_only=False"):
        ampc.load(tmp_path / "p.pt")
    with ampc.serialization.safe_globals([Point]):
        assert ampc.serialization.get_safe_globals() == [Point]
        found = ampc.load(tmp_path / "p.pt")["a"]
        assert type(found) is Point and found.x.tolist() == [0, 1, 2] and found.y == {1, 2}
    assert ampc.serialization.get_safe_globals() == []
    ampc.serialization.add_safe_globals([(Point, "elsewhere.Point")])
    with pytest.raises(pickle.UnpicklingError, match=r"Point, which is not among the safe globals"):
        ampc.load(tmp_path / "p.pt")
    ampc.serialization.clear_safe_globals()


def test_safe_globals_let_nothing_else_in(tmp_path):
    torch = pytest.importorskip("torch")
    for n, evil in enumerate((print, Point(1, 2).__class__.__mro__[1].__subclasses__, pickle.loads)):
        torch.save({"a": Point(evil, 0)}, tmp_path / f"{n}.pt")
        with ampc.serialization.safe_globals([Point]), pytest.raises(pickle.UnpicklingError, match="not among the safe globals"):
            ampc.load(tmp_path / f"{n}.pt")
    assert ampc.serialization.DEFAULT_PROTOCOL == torch.serialization.DEFAULT_PROTOCOL


def test_tensors_joined_and_cut_again():
    from ampc._utils import _flatten_dense_tensors, _get_device_index, _take_tensors, _unflatten_dense_tensors

    parts = [ampc.arange(6.0).view(2, 3), ampc.ones(()), ampc.zeros(0, 2), ampc.full((2,), 7.0)]
    flat = _flatten_dense_tensors(parts)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 1, 7, 7]
    back = _unflatten_dense_tensors(flat, parts)
    assert all(a.shape == b.shape and bool((a == b).all()) for a, b in zip(back, parts))
    flat[0] = 9
    assert back[0][0, 0] == 9  # views
    mixed = [ampc.ones(4), ampc.ones(4).long(), ampc.ones(4), ampc.ones(4).long(), ampc.ones(9)]
    assert [[t.numel() for t in group] for group in _take_tensors(mixed, 32)] == [[4], [4, 4], [9], [4]]
    assert _get_device_index(3) == 3 and _get_device_index("cuda:1") == 1 and _get_device_index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="cuda"):
        _get_device_index("cpu")


def test_normalize_over_several_dimensions():
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    for dim in (1, (1,), (1, 2), (-1, 0), (0, 1, 2)):
        want = x / np.sqrt((x**2).sum(axis=dim, keepdims=True))
        np.testing.assert_allclose(F.normalize(ampc.tensor(x), dim=dim).numpy(force=True), want, rtol=1e-14)
    y = ampc.tensor(x, requires_grad=True)
    assert ampc.autograd.gradcheck(lambda t: F.normalize(t, dim=(0, 2)), (y,))


def test_the_default_stream_is_a_generator():
    stream = ampc.default_generator
    assert isinstance(stream, ampc.Generator) and stream is ampc.manual_seed(7) and stream.initial_seed() == 7 and stream.device.type == "cpu"
    first = ampc.randn(3).tolist()
    stream.manual_seed(7)
    kept = stream.get_state()
    assert ampc.randn(3, generator=stream).tolist() == first  # drawing by it is drawing without
    second = ampc.randn(3).tolist()
    stream.set_state(kept)
    assert ampc.randn(3).tolist() == first and ampc.randn(3).tolist() == second
    assert ampc.equal(ampc.get_rng_state(), stream.get_state())
    data = ampc.utils.data.DataLoader(range(4), batch_size=2, shuffle=True, generator=stream)
    assert sorted(int(i) for batch in data for i in batch) == [0, 1, 2, 3]


def test_a_state_of_random_numbers_is_bytes_so_that_a_conversion_to_bytes_keeps_it():
    """Scripts convert the state of a checkpoint, which may have moved to a device, before they set it."""
    ampc.manual_seed(2**63 + 12345)
    ampc.randn(1000)
    state, want = ampc.get_rng_state(), None
    assert state.dtype == ampc.uint8 and state.ndim == 1
    for given in (state, state.byte(), state.type(ampc.ByteTensor), state.cpu().to(ampc.uint8), ampc.ByteTensor(state), ampc.tensor(state.tolist(), dtype=ampc.uint8)):
        ampc.set_rng_state(given)
        drawn = ampc.randn(5).tolist()
        want = want or drawn
        assert drawn == want
    other = ampc.Generator()
    assert other.set_state(state) is other and ampc.randn(5, generator=other).tolist() == want


def test_layouts_that_no_tensor_has():
    for name in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"):
        kind = getattr(ampc, name)
        assert isinstance(kind, ampc.layout) and ampc.ones(1).layout != kind and repr(kind) == f"ampc.{name}"
        with pytest.raises(RuntimeError, match="strided tensors only"):
            ampc.ones(1, layout=kind)


def test_the_name_of_extra_state():
    from ampc.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX

    class Kept(nn.Linear):
        def get_extra_state(self):
            return 3

        def set_extra_state(self, state):
            self.got = state

    state = Kept(1, 1).state_dict()
    assert state[_EXTRA_STATE_KEY_SUFFIX] == 3
    other = Kept(1, 1)
    other.load_state_dict(state)
    assert other.got == 3


def test_complex32_is_a_name():
    assert ampc.complex32.itemsize == 4 and ampc.complex32.is_complex and ampc.float32 != ampc.complex32


def test_annotations_of_torchscript_in_brackets():
    from ampc.jit.annotations import BroadcastingList2

    def pool(size: BroadcastingList2[int]) -> None:
        """As torchvision's."""

    assert pool.__annotations__["size"] == BroadcastingList2[int] and BroadcastingList2.__doc__


def test_packages_say_how_their_samples_are_joined():
    from ampc.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

    from ampc.utils.data import default_collate

    assert collate_tensor_fn([ampc.ones(2), ampc.zeros(2)]).tolist() == [[1, 1], [0, 0]]

    def joined(batch, *, collate_fn_map=None):
        assert collate_fn_map is default_collate_fn_map
        return [p.x for p in batch]

    default_collate_fn_map.update({Point: joined})
    try:
        found = default_collate([{"p": Point(1, 2), "n": 1}, {"p": Point(3, 4), "n": 2}])
        assert found["p"] == [1, 3] and found["n"].tolist() == [1, 2]
    finally:
        del default_collate_fn_map[Point]
    with pytest.raises(TypeError, match="got Point"):
        default_collate([Point(1, 2)])


def test_the_private_name_of_load_hooks():
    """transformers' Mamba registers its hook by it."""
    seen, layer = [], ampc.nn.Linear(1, 1)
    layer._register_load_state_dict_pre_hook(lambda state, prefix, *rest: seen.append((sorted(state), prefix)))
    layer._register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: seen.append(module is layer), with_module=True)
    layer.load_state_dict(layer.state_dict())
    assert seen == [(["bias", "weight"], ""), True]


def test_new_takes_sizes_data_and_nothing(torch):
    """Code for recurrent networks from before `new_zeros` says `x.new(x.size())`: a Size is a size, while a list is data."""
    for library in (torch, ampc):
        x = library.arange(6.0).reshape(2, 3)
        assert tuple(x.new().shape) == (0,) and tuple(x.new().long().shape) == (0,)
        assert tuple(x.new(x.size()).zero_().shape) == (2, 3) and tuple(x.new(x.shape).shape) == (2, 3)
        assert x.new([2, 3]).tolist() == [2, 3] == x.new((2, 3)).tolist()
        assert tuple(x.new(4, 5).shape) == (4, 5) and x.double().new(2).dtype == library.float64


def test_a_count_may_be_a_tensor(torch):
    for library in (torch, ampc):
        n = library.tensor(3)
        assert library.linspace(0, 1, n).tolist() == [0, 0.5, 1] == library.linspace(0, 1, steps=n).tolist()
        assert library.linspace(0, 4, n, dtype=library.int32).tolist() == [0, 2, 4]
        assert library.logspace(0, 2, n).tolist() == [1, 10, 100]


def test_randint_by_names(torch):
    for library in (torch, ampc):
        x = library.zeros(200)
        for drawn in (library.randint(high=3, size=(200,)), library.randint_like(x, high=3)):
            assert sorted(set(drawn.tolist())) == [0, 1, 2]
        with pytest.raises(TypeError, match="size"):
            library.randint(low=1, high=3)


def test_bytes_of_what_is_trained_are_a_view_without_history(torch):
    """Optimizers for 16 bits read and write the bits of parameters."""
    for library in (torch, ampc):
        p = library.nn.Parameter(library.ones(3))
        for source in (p, p * 1):
            assert not source.view(library.int32).requires_grad and not source.view(library.float16).requires_grad
        with library.no_grad():
            p.view(library.int32).bitwise_and_(-65536).add_(1 << 16)
        assert p.requires_grad and p.is_leaf and p.tolist() == [1.0078125] * 3


def test_names_of_torchs_core():
    assert ampc._C._LinAlgError is ampc.linalg.LinAlgError and ampc._C.Generator is ampc.Generator and ampc._C.Size is ampc.Size
    with pytest.raises(ampc._C._LinAlgError):
        ampc.linalg.solve(ampc.zeros(2, 2), ampc.ones(2))


def test_a_class_may_have_a_function_as_its_attribute(torch):
    """Layers name their convolution or activation so. Only a Tensor's own attribute is a method."""
    for library in (torch, ampc):
        class Layer:
            act, conv, add = library.relu, library.conv2d, library.add

        image = library.ones(1, 1, 2, 2)
        assert Layer().act(library.tensor([-1.0, 2.0])).tolist() == [0, 2] and Layer.act is library.relu
        assert Layer().conv(image, weight=image).tolist() == [[[[4]]]]
        assert Layer().add(library.ones(2), library.ones(2), alpha=2).tolist() == [3, 3]

        class Named(library.Tensor):
            own = library.Tensor.add

        assert library.ones(2).as_subclass(Named).own(1).tolist() == [2, 2]
        assert library.Tensor.relu is not library.relu and pickle.loads(pickle.dumps(library.Tensor.relu)) is library.Tensor.relu


SEGMENTS = [({"reduce": "sum", "lengths": [2, 0, 1]}, 0), ({"reduce": "sum", "offsets": [0, 1, 3], "initial": 10}, 0), ({"reduce": "mean", "lengths": [2, 0, 1]}, 0),
            ({"reduce": "mean", "offsets": [0, 2, 2, 3], "initial": 0}, 0), ({"reduce": "prod", "lengths": [0, 3]}, 0), ({"reduce": "max", "lengths": [1, 2]}, 0),
            ({"reduce": "amin", "lengths": [[1, 1], [2, 0], [0, 2]], "initial": 0.5}, 1), ({"reduce": "max", "lengths": [1, 1], "unsafe": True}, 0),
            ({"reduce": "amax", "lengths": [[0, 2], [1, 1], [2, 0]]}, 1)]


@pytest.mark.parametrize(("options", "axis"), SEGMENTS, ids=str)
def test_segments_as_torch(torch, options, axis):
    found = []
    for library in (torch, ampc):
        x = (library.arange(24, dtype=library.float64).reshape(3, 2, 4) * 0.37).sin().requires_grad_()
        where = {name: library.tensor(v) if isinstance(v, list) else v for name, v in options.items()}
        y = library._segment_reduce(x, axis=axis, **where)
        library.where(y.isfinite(), y * library.arange(y.numel()).reshape(y.shape), 0).sum().backward()
        found.append((y.detach(), x.grad))
    for mine, theirs in zip(found[1], found[0]):
        np.testing.assert_allclose(mine.cpu().numpy(), theirs.cpu().numpy(), rtol=1e-12)


def test_segments_that_do_not_fit(torch):
    for library in (torch, ampc):
        x = library.ones(3)
        for wrong in ({"lengths": library.tensor([1, 1])}, {"lengths": library.tensor([4, -1])}, {}, {"lengths": library.tensor([[3]])}):
            with pytest.raises(RuntimeError):
                library._segment_reduce(x, "sum", **wrong)
        with pytest.raises(RuntimeError, match="median"):
            library._segment_reduce(x, "median", lengths=library.tensor([3]))


def test_indices_of_sparse_matrices(torch):
    for library in (torch, ampc):
        crow = library._convert_indices_from_coo_to_csr(library.tensor([0, 0, 2]), 4)
        assert crow.tolist() == [0, 2, 2, 3, 3] and crow.dtype == library.int64
        assert library._convert_indices_from_coo_to_csr(library.tensor([1]), 2, out_int32=True).dtype == library.int32
        assert library._convert_indices_from_csr_to_coo(crow, library.tensor([5, 6, 7])).tolist() == [[0, 0, 2], [5, 6, 7]]
        turned = library._convert_indices_from_csr_to_coo(crow, library.tensor([5, 6, 7]), transpose=True, out_int32=True)
        assert turned.tolist() == [[5, 6, 7], [0, 0, 2]] and turned.dtype == library.int32


def test_masks_of_attention_are_merged(torch):
    results = []
    for library in (torch, ampc):
        attention, query = library.nn.MultiheadAttention(4, 2), library.ones(3, 2, 4)
        square, cube, padding = library.eye(2), library.arange(24.0).reshape(6, 2, 2), library.tensor([[0.0, 1], [2, 3], [4, 5]])
        results.append([(None if mask is None else mask.tolist(), kind) for mask, kind in (
            attention.merge_masks(a, p, query) for a in (None, square, cube) for p in (None, padding))])
    assert results[0] == results[1]


def test_a_layer_of_ones_own_that_waits_for_its_input_is_loaded_waiting():
    """A state dict of such a layer may hold a parameter without a size."""
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.UninitializedParameter()

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "weight"] = self.weight

    layer = Layer()
    layer.load_state_dict(Layer().state_dict())
    assert isinstance(layer.weight, nn.UninitializedParameter)


def test_the_name_of_a_type(torch):
    for what in ("lib.nn.Linear(1, 1)", "lib.nn.Linear", "lib.nn.Parameter", "lib.ones(1, device='cpu').double()", "3", "int", "'a'", "[]"):
        ours, theirs = (lib.typename(eval(what, {"lib": lib})) for lib in (ampc, torch))
        assert ours.replace("ampc.", "torch.").replace("torch.cuda.", "torch.") == theirs


def test_subclasses_are_made_of_tensors(torch):
    """Quantized parameters and lazily loaded tensors of libraries call this in their __new__."""
    for library in (torch, ampc):
        class Kept(library.Tensor):
            pass

        data = library.ones(2, requires_grad=True) * 2
        kept = library.Tensor._make_subclass(Kept, data, True)
        assert type(kept) is Kept and kept.is_leaf and kept.requires_grad and kept.data_ptr() == data.data_ptr()
        assert not library.Tensor._make_subclass(Kept, data).requires_grad
        assert type(library.nn.Parameter._make_subclass(library.nn.Parameter, data)) is library.nn.Parameter


def test_padding_by_a_mode_takes_a_value_of_0(torch):
    """Augmentations pass their fill whatever the mode."""
    for library in (torch, ampc):
        x, pad = library.arange(3.0).reshape(1, 3), library.nn.functional.pad
        for value in (0, 0.0, None):
            assert pad(x, (1, 1), mode="reflect", value=value).tolist() == [[1, 0, 1, 2, 1]]
        with pytest.raises(RuntimeError, match="value"):
            pad(x, (1, 1), mode="replicate", value=1)


def test_a_gradient_by_its_other_name():
    """``_grad``, which libraries set where they replace a gradient."""
    p = nn.Parameter(ampc.ones(2))
    assert p._grad is None
    p._grad = ampc.full((2,), 3.0)
    assert p.grad.tolist() == p._grad.tolist() == [3.0, 3.0]
    with pytest.raises((TypeError, RuntimeError)):
        p._grad = 3
    p._grad = None
    assert p.grad is None


def scaled_convolution(torch, kind, **kwargs):
    """As Whisper's layers do, and those that standardise their weights: a module of torch's whose convolution is given another weight."""
    class Scaled(getattr(torch.nn, kind)):
        def _conv_forward(self, input, weight, bias):
            return super()._conv_forward(input, 2 * weight, None if bias is None else bias + 1)

    return Scaled(2, 3, 3, **kwargs)


def with_own_blocks(torch, kind):
    """A layer of torch's whose blocks are somebody's own."""
    class Own(getattr(torch.nn, kind)):
        def _sa_block(self, x, *masks, **kwargs):
            return 2 * super()._sa_block(x, *masks, **kwargs)

        def _mha_block(self, x, mem, *masks, **kwargs):
            return 3 * super()._mha_block(x, mem, *masks, **kwargs)

        def _ff_block(self, x):
            return 4 * super()._ff_block(x)

    return Own(8, 2, 16, dropout=0.0)


EXTENDED = {
    "a convolution": (lambda torch: scaled_convolution(torch, "Conv1d", padding=1), [(2, 2, 5)]),
    "padded in a circle": (lambda torch: scaled_convolution(torch, "Conv2d", padding=(1, 2), padding_mode="circular", bias=False), [(2, 2, 5, 6)]),
    "an encoder's layer": (lambda torch: with_own_blocks(torch, "TransformerEncoderLayer"), [(5, 2, 8)]),
    "a decoder's layer": (lambda torch: with_own_blocks(torch, "TransformerDecoderLayer"), [(5, 2, 8), (4, 2, 8)])}


@pytest.mark.skipif(torch is None, reason="compares with torch")
@pytest.mark.parametrize("what", list(EXTENDED))
def test_methods_that_subclasses_put_theirs_in_place_of(what):
    make, shapes = EXTENDED[what]
    rng = np.random.default_rng(0)
    theirs, ours = make(torch), make(ampc)
    ours.load_state_dict({name: ampc.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    operands = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    want, got = theirs(*map(torch.tensor, operands)), ours(*map(ampc.tensor, operands))
    np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-5)
    if "Conv" in type(ours).__mro__[1].__name__:
        assert ours._reversed_padding_repeated_twice == theirs._reversed_padding_repeated_twice


def test_initial_values_that_subclasses_put_theirs_in_place_of():
    class Ones(nn.Transformer):
        def _reset_parameters(self):
            for p in self.parameters():
                nn.init.ones_(p)

    class Kept(nn.Embedding):
        def _fill_padding_idx_with_zero(self):
            pass

    assert all((p == 1).all() for p in Ones(8, 2, 1, 1, 16).parameters())
    assert (Kept(4, 3, padding_idx=1).weight[1] != 0).any() and (nn.Embedding(4, 3, padding_idx=1).weight[1] == 0).all()


def test_registries_that_go_through_a_package_find_all_of_it():
    assert {"LazyLinear", "AdaptiveLogSoftmaxWithLoss", "Linear", "utils", "attention"} <= set(dir(nn)) and "swa_utils" in dir(ampc.optim)
    assert {"LazyConv2d", "lazy", "conv", "Conv2d"} <= set(dir(nn.modules))
    assert issubclass(nn.ConvTranspose2d, nn.modules.conv._ConvTransposeMixin) and not issubclass(nn.Conv2d, nn.modules.conv._ConvTransposeMixin)
