"""``ampc check``: reads training scripts for torch or ampc, without running them, and names misuse of mixed precision that a reader can
see. Every rule has a page in docs/rules/."""

from __future__ import annotations

from .source import Finding, check_file, check_source

__all__ = ["Finding", "check_file", "check_source"]
