"""The seal: one command of an agent in namespaces of our making, where nothing can be reached but what it is handed.

::

    runner                 Sandbox.run: hands the plan over, reads what the command prints, waits
    └── warden             outside: wall clock, group, relay of the sockets, collecting, cleaning up  (supervisor.py)
        └── opener         makes the namespaces, waits for the init                                   (init.py)
            └── init       process 1 inside: builds the root, reaps                                   (init.py)
                └── agent  another uid, no capabilities, filtered system calls, limits                (confine.py)

Each ends with the one above it, whatever killed that one, and mounts and namespaces end with the last process.
Everything here but `seal.py` runs on the standard library alone, in an interpreter that sees no site-packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opsassay.solvers.sandbox.seal import Ended, Sandbox, SandboxLimits, python_path, sealing_refusal, signal_name

__all__ = ["Ended", "Sandbox", "SandboxLimits", "python_path", "sealing_refusal", "signal_name"]


def __getattr__(name: str) -> Any:
    """Return `seal`'s value of *name*, imported lazily: the supervisor starts in every run and needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opsassay.solvers.sandbox import seal

    return getattr(seal, name)
