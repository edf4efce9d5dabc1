"""torch.utils.deterministic: whether memory that nobody has set is filled, once `use_deterministic_algorithms(True)` was called."""

__all__ = ["fill_uninitialized_memory"]

#: True: `empty`, `empty_like`, `resize_` and their like then give nan, or the largest number of integers, so that a value that nobody sets is noticed.
fill_uninitialized_memory = True
