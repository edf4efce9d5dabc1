"""More of what test_distributed.py runs in several processes, see ``ranks``: training."""
