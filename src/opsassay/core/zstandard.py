"""Zstandard for bodies and archives: from the standard library since Python 3.14, before from its backport."""

import sys

if sys.version_info >= (3, 14):
    import zipfile

    from compression import zstd
else:
    from backports import zstd
    from backports.zstd import zipfile

__all__ = ["zipfile", "zstd"]
