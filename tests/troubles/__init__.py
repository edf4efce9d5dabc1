"""A corpus of small training scripts with labels, and how often ampc's diagnosis of them is right. ``python -m troubles --help``."""
