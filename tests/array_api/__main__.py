"""Runs the suite on both namespaces; the status is 1 where a test fails that is not listed, or passes that is."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

MODULES = {"namespace": "ampc._tensor.array_api", "top": "exec('from array_api.namespaces import top as xp')"}


def run(clone, which, examples, more=()):
    """The status of pytest on one of the namespaces."""
    tests = Path(__file__).resolve().parent.parent
    env = {**os.environ, "ARRAY_API_TESTS_MODULE": MODULES[which], "ARRAY_API_TESTS_VERSION": "2024.12",
           "ARRAY_API_TESTS_SKIP_DTYPES": "uint16,uint32,uint64,complex64,complex128",
           "PYTHONPATH": os.pathsep.join([str(tests), *sys.path[1:]])}
    command = [sys.executable, "-m", "pytest", "-p", "array_api.plugin", "-p", "no:cacheprovider", "-q", "--no-header", "--disable-warnings", "-rfE",
               "--tb=short", "--disable-deadline", f"--max-examples={examples}", *(more or ["array_api_tests"])]
    return subprocess.run(command, cwd=clone, env=env).returncode


def main():
    parser = argparse.ArgumentParser(prog="python -m array_api", description=__doc__)
    parser.add_argument("--clone", default=os.environ.get("AMPC_ARRAY_API_TESTS"), help="where array-api-tests lies; else $AMPC_ARRAY_API_TESTS")
    parser.add_argument("--only", choices=MODULES, help="one of the two namespaces")
    parser.add_argument("--examples", type=int, default=100, help="how many Hypothesis draws for a test")
    args, more = parser.parse_known_args()  # what is left is pytest's, in place of the whole suite
    if not args.clone:
        parser.error("say where array-api-tests lies: --clone, or AMPC_ARRAY_API_TESTS")
    return max(run(args.clone, which, args.examples, more) for which in ([args.only] if args.only else MODULES))


if __name__ == "__main__":
    sys.exit(main())
