"""Faults inside the service process: its HTTP boundary, its methods, its database calls, its clock, its resources."""

from __future__ import annotations

from opsassay.testbed.core.injection import Injection
from opsassay.testbed.injection.under_test import Account, SystemUnderTest, hook


class RuntimeHook:
    """Switches one hook of the runtime on and off; a restarted process gets it again."""

    def __init__(self, injection: Injection[SystemUnderTest]) -> None:
        self._injection = injection

    async def apply(self) -> None:
        """Switch the fault's hook on in the target's process."""
        await hook(self._injection, on=True, parameters=self._injection.plan.parameters)

    async def undo(self) -> None:
        """Switch the fault's hook off in the target's process."""
        await hook(self._injection, on=False)


class ProcessStress(RuntimeHook):
    """A hook that makes the whole process slow: its callers keep account of what they wait for."""

    def __init__(self, injection: Injection[SystemUnderTest]) -> None:
        super().__init__(injection)
        self._account = Account(injection)

    async def apply(self) -> None:
        """Switch the stress hook on in the target's process."""
        await super().apply()
        await self._account.open()

    async def undo(self) -> None:
        """Switch the stress hook off in the target's process."""
        await super().undo()
        await self._account.close()
