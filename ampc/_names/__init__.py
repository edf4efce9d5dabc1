"""Torch's names that libraries touch and ampc has no file for, and what is said of those that are absent."""
