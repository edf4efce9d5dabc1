#!/bin/sh
# What a new machine's GPU makes of ampc, in ten minutes and one file: `ampc first-contact`.
# With a wheel as the first argument, it is unpacked into a folder of its own first and used from there, beside what this Python has: NumPy
# and, where it is installed, torch. Other arguments are the command's. PYTHON names another Python than python3.
set -eu
python=${PYTHON:-python3}
case "${1:-}" in
*.whl)
    folder=$(mktemp -d)
    "$python" -m pip install --quiet --no-deps --target "$folder" "$1"
    "$python" -c "import numpy" 2>/dev/null || "$python" -m pip install --quiet --target "$folder" numpy
    export PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}"
    shift
    exec "$python" "$folder/bin/ampc" first-contact "$@"
    ;;
esac
exec "$python" -m ampc first-contact "$@"
