"""The true cascade of a known fault: PAVE and beyond."""
