"""Versions, as torch.version has them."""

from . import __version__

cuda = None  # the toolkit that a build of torch is bound to; here the driver's libraries are found when they are needed
hip = None
debug = False
git_version = ""

__all__ = ["__version__", "cuda", "debug", "git_version", "hip"]
