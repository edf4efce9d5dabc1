"""The array API standard's own test suite, run on ampc: see README.md."""
