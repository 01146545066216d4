"""What `opsassay annotate` imports before it does anything: libraries that take most of a second must not be among it."""

import subprocess
import sys

SLOW = ("scipy", "sklearn", "statsmodels", "duckdb", "ray", "openai", "aiohttp")


def test_annotate_starts_without_slow_libraries():
    program = f"import sys, opsassay.annotation.job; print([m for m in {SLOW} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
