"""The process: its launcher, its settings, its libraries, and what it was built with."""
