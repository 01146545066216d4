#!/usr/bin/env bash
# Package: polars
# Version: 2.1.0
# Date: 2026-11-28
# Happens: `write_parquet` and `sink_parquet` on a full disk raise ComputeError ("parquet: File out of specification"), which
#   is no OSError. For the same disk `write_csv` and `write_ipc` raise OSError, but its errno is None.
# Guessed: An OSError with errno ENOSPC from all of them, as `open(path, "wb").write(...)` raises it.
# Matters: A program that handles a full disk by class and errno handles none of these, and its user reads that the file is
#   malformed. Written to a BytesIO first and then to the file, a table gives the usual error.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 500 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check polars==2.1.0

cat >"$dir/see.py" <<'PY'
import errno
import sys

import polars as pl

table = pl.DataFrame({"number": range(1000)})


def seen(write, path="/dev/full"):
    """Return the class, the error number and the text of what *write* raises on a device that is always full."""
    try:
        write(path)
    except Exception as error:
        found = type(error).__name__, getattr(error, "errno", "absent"), str(error)
        print(f"{write.__name__}: {found[0]}, errno {found[1]}: {found[2]}")
        return found
    sys.exit(f"{write.__name__} raises nothing")


def plain(path):
    with open(path, "wb") as stream:
        stream.write(bytes(100_000))


assert seen(plain)[:2] == ("OSError", errno.ENOSPC)
assert seen(table.write_parquet)[:2] == ("ComputeError", "absent")
assert seen(table.lazy().sink_parquet)[:2] == ("ComputeError", "absent")
assert seen(table.write_csv)[:2] == ("OSError", None)
assert seen(table.write_ipc)[:2] == ("OSError", None)
PY
timeout 120 "$dir/venv/bin/python" "$dir/see.py"
echo "As described."
