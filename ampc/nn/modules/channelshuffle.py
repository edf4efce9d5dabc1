"""Channel shuffle."""

from __future__ import annotations

from ._function_module import FunctionModule

__all__ = ["ChannelShuffle"]


class ChannelShuffle(FunctionModule, function="channel_shuffle"):
    """Channels of ``groups`` groups dealt out in turn (Zhang et al. 2018)."""

    groups: int
