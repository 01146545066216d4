"""Agents that diagnose and repair, and the models that they ask."""
