"""Versions, as torch.version has them."""

__version__ = "0.1.0"
cuda = None  # the toolkit that a build of torch is bound to; here the driver's libraries are found when they are needed
hip = xpu = None
debug = False
git_version = ""

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]
