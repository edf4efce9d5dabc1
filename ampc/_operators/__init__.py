"""Operators that are defined in Python: their schemas, and checks of them."""
