"""Whether this machine's kernels are right: ``ampc selftest``."""

from .report import Report, selftest

__all__ = ["Report", "selftest"]
