"""Negative controls: scripted wrong repairs that cheat in a known way, generated for any scenario."""
