"""Readers of traces of other tools, and writers of traces for other tools."""

from __future__ import annotations

from opsassay.solvers.proxy.formats.finding import read_one, read_traces

__all__ = ["read_one", "read_traces"]
