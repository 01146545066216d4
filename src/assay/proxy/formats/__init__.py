"""Traces of other tools, read into the Trace, and the Trace written for other tools."""
