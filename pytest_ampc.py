"""What pytest gets from ampc: ``--ampc-doctor``, and the fixtures ``amp_dtype`` and ``ampc_seed``. ampc itself is imported when a test asks for it.

    def test_half(amp_dtype, ampc_seed):                  # runs in float16 and in bfloat16, from one random stream
        with ampc.autocast("cpu", dtype=amp_dtype): ...

    $ pytest --ampc-doctor                                # fails tests in which an operator overflows, or mixed precision is misused
"""

from __future__ import annotations

from typing import Any, Iterator

import pytest

SEED = 0


def pytest_addoption(parser: Any) -> None:
    """Adds the options."""
    group = parser.getgroup("ampc")
    group.addoption("--ampc-doctor", action="store_true", help="fail tests in which an operator returns inf or nan from finite inputs, or autocast "
                    "or a GradScaler is misused")
    group.addoption("--ampc-seed", type=int, default=SEED, metavar="N", help=f"what the fixture ampc_seed seeds with ({SEED})")


def pytest_configure(config: Any) -> None:
    """Names the marker."""
    config.addinivalue_line("markers", "ampc_undoctored: --ampc-doctor leaves this test alone")


@pytest.fixture(params=["float16", "bfloat16"])
def amp_dtype(request: Any) -> Any:
    """ampc.float16, then ampc.bfloat16."""
    import ampc

    return getattr(ampc, request.param)


@pytest.fixture
def ampc_seed(request: Any) -> int:
    """Seeds ampc, NumPy and ``random``; the seed."""
    import random

    import numpy as np

    import ampc

    seed = request.config.getoption("--ampc-seed")
    random.seed(seed)
    np.random.seed(seed % 2**32)
    ampc.manual_seed(seed)
    return int(seed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Runs the test under the doctor, where that is asked for."""
    if not item.config.getoption("--ampc-doctor") or item.get_closest_marker("ampc_undoctored"):
        return (yield)
    from ampc.doctor import guard, rules
    from ampc.doctor.nonfinite import Doctor

    before = guard.reports(clear=True)
    with Doctor() as found:
        result = yield
    misuse = [report for report in guard.reports(clear=True) if report.rule not in rules.NOTES]
    told = [f"{report.file}:{report.line}: [{report.rule}] {report.text}\n    {report.fix}" for report in misuse]
    guard._State.log.extend(before)
    told += [str(finding) for finding in found.findings if finding.cause != "scale"]
    if told:
        pytest.fail("ampc.doctor:\n" + "\n".join(told), pytrace=False)
    return result
