"""Negative controls: operators that cheat in a known way, made from any scenario."""
