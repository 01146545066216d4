"""Harbor itself, which needs Python 3.12: run by an interpreter that has it, or skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

VARIABLE = "OPSASSAY_HARBOR_PYTHON"


def run_with_harbor(program, *arguments):
    """Run *program* where `import harbor` works and return what it prints; skip where nobody has it."""
    for python in (os.environ.get(VARIABLE), sys.executable, *map(shutil.which, ("python3.12", "python3.13"))):
        if python and not subprocess.run([python, "-c", "import harbor"], capture_output=True, check=False).returncode:
            done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout
    pytest.skip(f"harbor is not installed: pip install it into a Python 3.12 and set {VARIABLE} to that interpreter")
    raise AssertionError
