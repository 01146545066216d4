"""OpsAssay grades agents and algorithms that operate live systems: the answer, the path and the side effects."""

__version__ = "0.1.0"
