#!/usr/bin/env bash
# What a new machine's GPU makes of ampc, in ten minutes and one file: `ampc first-contact`.
# With a wheel as the first argument it is installed in an environment of its own first; other arguments are the command's.
set -euo pipefail
python=${PYTHON:-python3}
if [[ "${1:-}" == *.whl ]]; then
    folder=$(mktemp -d)
    "$python" -m venv --system-site-packages "$folder"
    "$folder/bin/python" -m pip install --quiet --no-deps "$1" # NumPy is the machine's, or comes next
    "$folder/bin/python" -c "import numpy" 2>/dev/null || "$folder/bin/python" -m pip install --quiet numpy
    python=$folder/bin/python
    shift
fi
exec "$python" -m ampc first-contact "$@"
