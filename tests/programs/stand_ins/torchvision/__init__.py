"""Stands in for torchvision in tests: the digits of ampc's own data in MNIST's and CIFAR10's form, and the transforms that the
programs name."""

from . import datasets, transforms, utils  # noqa: F401

__version__ = "0.0"
