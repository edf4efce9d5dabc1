"""ampc.utils._pytree beside torch's, on nested structures; where torch is absent they skip."""

import copy
import dataclasses
import enum
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest

import ampc
from ampc.utils import _pytree as mine

pytestmark = pytest.mark.cpu

Point = namedtuple("Point", "x y")


class Other(Point):  # a subclass of a named tuple is one
    pass


class MyList(list):
    pass


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any = None
    c: Any = 3


def default(**values):
    d = defaultdict(int)
    d.update(values)
    return d


TREES = {
    "leaf": 3, "none": None, "text": "abc", "empty list": [], "empty tuple": (), "empty dict": {}, "list": [1, [2, 3], 4], "tuple": (1, (2,), 3),
    "dict": {"b": 1, "a": {"c": [2, 3]}}, "keys": {1: "x", ("t", 2): "y", None: "z"}, "ordered": OrderedDict(b=1, a=[2]), "default": default(x=[1], y=2),
    "deque": deque([1, [2], (3,)], maxlen=5), "named": Point(1, [2, Point(3, None)]), "subclass of named": Other(1, 2), "subclass of list": [MyList([1, 2]), 3],
    "set": [{1, 2}, frozenset((3,))], "mixed": {"a": [1, (2, None)], "b": default(q=Point(1, deque([2]))), "c": [[], {}, ()], "d": OrderedDict(x={"y": (1.5, "s")})},
}


@pytest.fixture(params=list(TREES))
def tree(request):
    return TREES[request.param]


@pytest.fixture
def theirs():
    pytest.importorskip("torch")
    from torch.utils import _pytree

    return _pytree


def test_every_name_of_torch_is_there(theirs):
    assert set(theirs.__all__) == set(mine.__all__)
    assert [n for n in mine.__all__ if n[0].islower() and not getattr(mine, n).__doc__] == []


def test_flatten(tree, theirs):
    (a, spec), (b, other) = mine.tree_flatten(tree), theirs.tree_flatten(tree)
    assert a == b == mine.tree_leaves(tree) == list(mine.tree_iter(tree))
    assert repr(spec) == repr(other) and mine.treespec_pprint(spec) == theirs.treespec_pprint(other)
    assert (spec.num_nodes, spec.num_leaves, spec.num_children, spec.is_leaf()) == (other.num_nodes, other.num_leaves, other.num_children, other.is_leaf())
    again = mine.tree_unflatten(a, spec)
    assert again == tree and type(again) is type(tree)
    assert spec == mine.tree_structure(copy.deepcopy(tree)) and hash(spec) == hash(mine.tree_structure(copy.deepcopy(tree)))
    assert mine.tree_is_leaf(tree) == theirs.tree_is_leaf(tree)


def test_is_leaf(tree, theirs):
    for is_leaf in (lambda x: isinstance(x, tuple), lambda x: isinstance(x, (dict, list)), lambda x: True, lambda x: x is None):
        assert mine.tree_flatten(tree, is_leaf)[0] == theirs.tree_flatten(tree, is_leaf)[0]
        assert repr(mine.tree_structure(tree, is_leaf)) == repr(theirs.tree_structure(tree, is_leaf))


def test_map(tree, theirs):
    twice = str
    assert mine.tree_map(twice, tree) == theirs.tree_map(twice, tree)
    assert mine.tree_map(lambda a, b: (a, b), tree, tree) == theirs.tree_map(lambda a, b: (a, b), tree, tree)
    for kinds in (int, (int, str), lambda x: x == 2):
        assert mine.tree_map_only(kinds, lambda x: [x], tree) == theirs.tree_map_only(kinds, lambda x: [x], tree)
    for f in ("tree_any", "tree_all"):
        assert getattr(mine, f)(lambda x: x == 2, tree) == getattr(theirs, f)(lambda x: x == 2, tree)
        assert getattr(mine, f + "_only")(int, lambda x: x == 2, tree) == getattr(theirs, f + "_only")(int, lambda x: x == 2, tree)
    seen = []
    assert mine.tree_map_(seen.append, tree) is tree and seen == mine.tree_leaves(tree)
    assert mine.tree_map_only_(int, seen.append, tree) is tree


def test_paths(tree, theirs):
    a, b = mine.tree_leaves_with_path(tree), theirs.tree_leaves_with_path(tree)
    assert [(mine.keystr(k), v) for k, v in a] == [(theirs.keystr(k), v) for k, v in b]
    assert all(mine.key_get(tree, k) is v for k, v in a)
    assert mine.tree_flatten_with_path(tree)[1] == mine.tree_structure(tree)
    assert mine.tree_map_with_path(lambda k, x, y: (mine.keystr(k), x, y), tree, tree) == theirs.tree_map_with_path(lambda k, x, y: (theirs.keystr(k), x, y), tree, tree)


def test_text_goes_both_ways(tree, theirs):
    try:
        text = theirs.treespec_dumps(theirs.tree_structure(tree))
    except (NotImplementedError, TypeError) as error:
        with pytest.raises(type(error)):
            mine.treespec_dumps(mine.tree_structure(tree))
        return
    assert mine.treespec_dumps(mine.tree_structure(tree)) == text
    assert mine.treespec_loads(text) == mine.treespec_loads(theirs.treespec_dumps(theirs.treespec_loads(text)))


def test_text_imports_nothing():
    text = mine.treespec_dumps(mine.tree_structure(default(a=1)))
    with pytest.raises(ValueError, match="import antigravity first"):
        mine.treespec_loads(text.replace("builtins\", \"default_factory_name\": \"int", "antigravity\", \"default_factory_name\": \"webbrowser"))
    assert mine.treespec_loads(mine.treespec_dumps(mine.tree_structure({Colour.RED.name: 1})))
    with pytest.raises(ValueError, match="protocol"):
        mine.treespec_dumps(mine.tree_structure([1]), protocol=7)


def test_errors(theirs):
    pairs = [([1, 2], [1]), ([1, 2], (1, 2)), ({"a": 1}, {"b": 1}), ({"a": 1}, OrderedDict(a=2)), (Point(1, 2), (1, 2)), (deque([1]), deque([1], maxlen=2)),
             ([1, [2]], [1, 2]), ([1, 2], [1, [2, 3]]), (default(a=1), {"a": 2})]
    for one, other in pairs:
        found = []
        for library in (mine, theirs):
            try:
                found.append(library.tree_map(lambda a, b: (a, b), one, other))
            except ValueError:
                found.append(ValueError)
        assert found[0] == found[1], (one, other)
    for library in (mine, theirs):
        with pytest.raises(ValueError, match="expected 2 leaves, got 1" if library is mine else "holds 2"):
            library.tree_unflatten([1], library.tree_structure([1, 2]))
        with pytest.raises(TypeError):
            library.tree_unflatten([1], [1])
        with pytest.raises(TypeError, match="a tuple of"):
            library.tree_map_only(3, str, [1])
        with pytest.raises(ValueError, match="already registered"):
            library.register_pytree_node(list, None, None)


def test_registered_classes(theirs):
    for library in (mine, theirs):
        library.register_dataclass(Pair)
        library.register_pytree_node(MyList, lambda x: (list(x), "context"), lambda values, _: MyList(values), serialized_type_name="MyList")
        library.register_constant(type("Fixed", (), {"__eq__": lambda a, b: True, "__hash__": lambda a: 1}))
    try:
        for tree in (Pair([1, 2], None, 4), MyList([1, Pair(2, MyList([3]))])):
            assert mine.tree_leaves(tree) == theirs.tree_leaves(tree)
            assert mine.tree_map(str, tree) == theirs.tree_map(str, tree)
            assert repr(mine.tree_structure(tree)) == repr(theirs.tree_structure(tree))
        assert [mine.keystr(k) for k, _ in mine.tree_leaves_with_path(Pair([1], {"k": 2}))] == [".a[0]", ".b['k']", ".c"]
        for library in (mine, theirs):
            with pytest.raises(ValueError, match="flatten_with_keys_fn"):
                library.tree_leaves_with_path(MyList([1]))
            with pytest.raises(NotImplementedError):
                library.treespec_dumps(library.tree_structure(Pair(1)))
            with pytest.raises(TypeError, match="__eq__"):
                library.register_constant(type("Plain", (), {}))
        assert mine.treespec_loads(mine.treespec_dumps(mine.tree_structure(MyList([1])))) == mine.tree_structure(MyList([5]))
    finally:
        for library in (mine, theirs):
            library._deregister_pytree_node(Pair)
            library._deregister_pytree_node(MyList)
    assert mine.tree_is_leaf(Pair(1))


def test_tensors_sizes_and_named_results(theirs):
    import torch

    x = ampc.arange(6.0).reshape(2, 3)
    assert mine.tree_map(lambda n: n + 1, x.shape) == theirs.tree_map(lambda n: n + 1, torch.Size([2, 3])) == (3, 4)
    found = x.max(dim=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twice = mine.tree_map(lambda t: t * 2, found)
    assert type(twice) is type(found) and twice.values.tolist() == [6.0, 8.0, 10.0] and twice.indices.tolist() == [2, 2, 2]
    assert mine.tree_all(lambda t: isinstance(t, ampc.Tensor), {"a": x, "b": [found]})


def test_broadcast(theirs):
    for tree, full in (((1, 2), ([0, 0], 0)), (5, {"a": 1, "b": [2, 3]}), ([1, 2], [1]), ([1], (1,))):
        assert mine._broadcast_to_and_flatten(tree, mine.tree_structure(full)) == theirs._broadcast_to_and_flatten(tree, theirs.tree_structure(full))
    assert mine.arg_tree_leaves([1, 2], a=(3,)) == theirs.arg_tree_leaves([1, 2], a=(3,))
