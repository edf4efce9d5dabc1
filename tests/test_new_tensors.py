"""The keywords that every function takes that makes a tensor: `requires_grad`, `pin_memory`, `memory_format`, `layout`."""

import pytest

import ampc

SIZES = {"zeros": (2, 3), "ones": (2, 3), "empty": (2, 3), "rand": (2, 3), "randn": (2, 3), "full": ((2, 3), 1.5), "arange": (3.0,), "linspace": (0, 1, 3),
         "logspace": (0, 1, 3), "eye": (3,), "scalar_tensor": (2.0,), "empty_strided": ((2, 3), (3, 1)), "empty_permuted": ((2, 3), (1, 0)),
         "normal": (0.0, 1.0, (2, 3)), **dict.fromkeys(("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"), (5,))}
LIKE = {"zeros_like": (), "ones_like": (), "empty_like": (), "rand_like": (), "randn_like": (), "full_like": (1.5,), "randint_like": (5,)}
NEW = {"new_zeros": ((2, 3),), "new_ones": ((2, 3),), "new_empty": ((2, 3),), "new_full": ((2, 3), 1.5), "new_empty_strided": ((2, 3), (3, 1))}
WHOLE = {"randint": (0, 5, (2, 3)), "randperm": (4,), "tril_indices": (3, 3), "triu_indices": (3, 3)}


def maker(name):
    if name in NEW:
        return getattr(ampc.ones(2, 3), name)
    return (lambda *a, **k: getattr(ampc, name)(ampc.ones(2, 3, 4, 5), *a, **k)) if name in LIKE else getattr(ampc, name)


ALL = {**SIZES, **LIKE, **NEW, **WHOLE}


@pytest.mark.parametrize("name", ALL)
def test_words_that_all_of_them_take(name):
    make, args = maker(name), ALL[name]
    plain = make(*args)
    told = make(*args, pin_memory=False, layout=ampc.strided)
    assert told.shape == plain.shape and told.dtype == plain.dtype and told.stride() == plain.stride() and not told.requires_grad
    with pytest.raises(TypeError, match="pinned"):
        make(*args, pinned=True)
    if "indices" not in name:
        kind = {} if name not in WHOLE else {"dtype": ampc.float64}
        leaf = make(*args, requires_grad=True, **kind)
        assert leaf.requires_grad and leaf.is_leaf and leaf.dtype == kind.get("dtype", plain.dtype)


@pytest.mark.parametrize("name", ["empty", *LIKE])
def test_the_layout_of_memory_that_is_asked_for(name):
    args = (2, 3, 4, 5) if name == "empty" else LIKE[name]
    made = maker(name)(*args, memory_format=ampc.channels_last)
    assert made.shape == (2, 3, 4, 5) and made.is_contiguous(memory_format=ampc.channels_last) and not made.is_contiguous()


def test_pages_are_locked_where_that_is_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(ampc.Tensor, "pin_memory", lambda t: asked.append(t.shape) or t)
    for name, args in ALL.items():
        maker(name)(*args, pin_memory=True)
    assert len(asked) == len(ALL)


def test_the_bounds_of_whole_numbers_by_name():
    ampc.manual_seed(3)
    drawn = ampc.randint(high=4, size=(300,))
    assert sorted(set(drawn.tolist())) == [0, 1, 2, 3]
    assert set(ampc.randint(2, (100,)).tolist()) == {0, 1} == set(ampc.randint(2, size=(100,)).tolist())
    assert set(ampc.randint(5, high=7, size=(100,)).tolist()) == {5, 6}
    like = ampc.randint_like(ampc.ones(300), high=3)
    assert set(like.tolist()) == {0.0, 1.0, 2.0} and like.dtype == ampc.float32
    for wrong in (lambda: ampc.randint(size=(2,)), lambda: ampc.randint_like(ampc.ones(2))):
        with pytest.raises(TypeError, match="`high` is missing"):
            wrong()


def test_pythons_types_as_dtypes(torch):
    for made in ("zeros(2, dtype=float)", "ones(2).to(float)", "tensor([1], dtype=float)", "zeros(2, dtype=int)", "zeros(2, dtype=bool)", "arange(3, dtype=float)"):
        ours, theirs = (eval("lib." + made, {"lib": lib}) for lib in (ampc, torch))
        assert ours.dtype.name == str(theirs.dtype).split(".")[1], made


@pytest.fixture
def deterministic(monkeypatch):
    from ampc._process import settings
    from ampc.utils import deterministic

    monkeypatch.setitem(settings.asked, "deterministic", False)
    monkeypatch.setattr(deterministic, "fill_uninitialized_memory", True)
    ampc.use_deterministic_algorithms(True)
    return deterministic


def test_what_nobody_sets_is_noticed_in_deterministic_mode(deterministic):
    x = ampc.zeros(2, 3)
    for t in (ampc.empty(2), ampc.empty_like(x), x.new_empty(4), ampc.empty_strided((2, 2), (1, 2)), x.new(3), x.new(size=(2,)), ampc.empty(2, dtype=ampc.float16)):
        assert t.isnan().all()
    assert ampc.empty(2, dtype=ampc.int8).tolist() == [127] * 2 and ampc.empty(1, dtype=ampc.bool).tolist() == [True]
    assert x.resize_(8)[:6].eq(0).all() and x[6:].isnan().all() and ampc.zeros(3).resize_(2).tolist() == [0, 0]
    deterministic.fill_uninitialized_memory = False
    assert ampc.empty(2).tolist() == [0, 0] and ampc.zeros(2).tolist() == [0, 0]


def test_a_size_by_its_name():
    x = ampc.ones(2, dtype=ampc.float64)
    assert x.new(size=(2, 3)).shape == (2, 3) and x.new(size=(2, 3)).dtype == ampc.float64
    with pytest.raises(TypeError, match="twice"):
        x.new(2, size=(3,))


def test_views_know_that_they_are():
    x = ampc.ones(2, 3)
    assert x[0]._is_view() and x.t()._is_view() and x.expand(2, 2, 3)._is_view()
    assert not any(t._is_view() for t in (x, x.clone(), x.detach(), x.t().contiguous(), x + 1, x.data))
