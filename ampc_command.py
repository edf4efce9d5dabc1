"""The command ``ampc``: mistakes in settings end it in one line and not in a traceback, also those that are met while ampc is imported.

PYTEST_DONT_REWRITE: as in ampc's own."""

import sys


def main() -> int:
    """Runs ``ampc.cli.main``; returns its exit status, 2 where ampc cannot be loaded, 130 after Ctrl-C."""
    try:
        from ampc.cli import main as command
    except (ImportError, MemoryError, ValueError) as error:
        print(f"ampc: {str(error) or 'memory ran out'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
