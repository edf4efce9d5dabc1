"""Tests that name what torch 2.13 brought. Beside an older torch they are left out."""

import importlib.metadata

SINCE = (2, 13)
TESTS = (
    "test_composed.py::test_equals_torch[aminmax]", "test_composed.py::test_equals_torch[nn.functional.lp_pool",
    "test_corners.py::test_errors_have_torchs_types[<lambda>8]", "test_corners.py::test_functions_made_of_others",
    "test_corners.py::test_limits_that_are_nan", "test_corners.py::test_sums_in_another_dtype_cast_first[nansum",
    "test_ctc.py::test_a_loss_with_a_layer_of_its_own", "test_flop_counter.py::test_the_table_is_torchs", "test_foreach.py::test_copies_and_zeros",
    "test_foreach.py::test_norms_and_sums", "test_foreach.py::test_types_are_looked_at_before_lengths",
    "test_lazy.py::test_a_lazy_layer_becomes_an_ordinary_one[LazyBatchNorm", "test_lazy.py::test_a_lazy_layer_becomes_an_ordinary_one[LazyInstanceNorm",
    "test_lazy.py::test_lazy_layers_without_a_part", "test_modules.py::test_layers[BatchNorm", "test_modules.py::test_layers[GroupNorm",
    "test_modules.py::test_layers[InstanceNorm", "test_modules.py::test_layers[LayerNorm", "test_modules.py::test_layers[SyncBatchNorm",
    "test_modules.py::test_signatures_are_torchs", "test_nn.py::test_layers_as_torch[BatchNorm", "test_nn.py::test_layers_as_torch[LayerNorm",
    "test_ops.py::test_torch[aminmax-", "test_ops.py::test_torch[narrow_copy-")


def left_out() -> "tuple[str, ...]":
    """Beginnings of the names of tests that this machine's torch is too old for."""
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:  # they skip themselves
        return ()
    return TESTS if (int(major), int(minor)) < SINCE else ()
