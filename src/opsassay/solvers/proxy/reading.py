"""Shared by the readers of traces: read a JSON file with clear errors, and find a value under several names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.untrusted import MAX_FILE_BYTES, read_plain, require_depth, storable


def read_json(path: Path) -> Any:
    """Return the JSON value in *path*; raises DatapackError naming file and line."""
    try:
        content = read_plain(path, MAX_FILE_BYTES).decode("utf-8")
        require_depth(content)
        return storable(json.loads(content))
    except OSError as error:
        raise DatapackError(f"Cannot read {path}: {error.strerror or error}; check the path.") from error
    except UnicodeDecodeError as error:
        raise DatapackError(f"{path} is not UTF-8 text (byte {error.start}); it is no trace.") from error
    except json.JSONDecodeError as error:
        raise DatapackError(f"{path}:{error.lineno}: not valid JSON: {error.msg}; give the file of a trace.") from error
    except ValueError as error:
        raise DatapackError(f"{path} is no trace: {error}.") from error


def first_of(payload: dict[str, Any], names: Sequence[str]) -> Any:
    """Return the first of the values under *names* in *payload* that is not None, None without one."""
    return next((payload[name] for name in names if payload.get(name) is not None), None)
