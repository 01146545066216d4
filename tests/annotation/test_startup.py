"""What `opsassay incident annotate` imports before it does anything: no library that takes most of a second."""

import subprocess
import sys

SLOW = ("scipy", "sklearn", "statsmodels", "duckdb", "ray", "openai", "aiohttp")


def test_annotate_starts_without_slow_libraries():
    program = f"import sys, opsassay.annotation.job; print([m for m in {SLOW} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
