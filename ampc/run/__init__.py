"""``ampc run script.py``: an unmodified script for torch, with ampc in torch's place. ``hook`` answers imports, ``script`` runs the
file, ``names`` reads it without running it."""
