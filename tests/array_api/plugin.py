"""What pytest loads beside the suite: it makes do without complex dtypes, and expects the failures that are listed with their reasons."""

import builtins
from pathlib import Path

import pytest
from hypothesis import Phase, settings

_FILES = {"ampc._tensor.array_api": "namespace.txt", "ampc": "top.txt"}


def _import_without_complex():
    """The suite takes the widest of the complex dtypes as it is imported, and there is none: a real one stands in. It is drawn nowhere."""
    largest = builtins.max

    def of_some(*args, **kwargs):
        return (None, 0) if args == ([],) else largest(*args, **kwargs)

    builtins.max = of_some
    try:
        from array_api_tests import dtype_helpers
    finally:
        builtins.max = largest
    dtype_helpers.widest_complex_dtype = dtype_helpers.widest_real_dtype


def expected(path):
    """{test: (reason, whether it depends on what is drawn)} of a list: reasons behind #, then the tests, those that may pass behind ~."""
    found, reason = {}, []
    fresh = True
    for line in Path(path).read_text().splitlines():
        if line.startswith("#"):
            reason = [*([] if fresh else reason), line[1:].strip()]
            fresh = False
        elif line:
            fresh = True
            found[line.removeprefix("~ ")] = (" ".join(reason), line.startswith("~ "))
    return found


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    settings.register_profile("ampc", settings.get_profile("array-api-tests"), database=None, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("ampc")


def pytest_collection_modifyitems(config, items):
    from array_api_tests import xp

    listed = expected(Path(__file__).parent / _FILES[xp.__name__])
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if getattr(case, "is_complex", False):
            item.add_marker(pytest.mark.skip(reason="a case of complex numbers"))
        name = item.nodeid.split("array_api_tests/")[-1]
        if name in listed:
            reason, drawn = listed.pop(name)
            item.add_marker(pytest.mark.xfail(reason=reason, strict=not drawn))
    if len(items) > 1000 and listed:
        raise pytest.UsageError(f"listed, and no test of the suite: {sorted(listed)}")


_import_without_complex()
