"""Zstandard, in bodies and in archives: the standard library has it since Python 3.14, a backport of the same before."""

import sys

if sys.version_info >= (3, 14):
    import zipfile

    from compression import zstd
else:
    from backports import zstd
    from backports.zstd import zipfile

__all__ = ["zipfile", "zstd"]
