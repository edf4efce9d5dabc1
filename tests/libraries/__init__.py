"""Real libraries, as they are, on ampc: `python -m libraries --python ENVIRONMENT/bin/python` from tests/."""
