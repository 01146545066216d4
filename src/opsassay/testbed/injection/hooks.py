"""Faults inside the service process: its HTTP boundary, its methods, its database calls, its clock, its resources."""

from __future__ import annotations

from opsassay.testbed.core.injection import Injection
from opsassay.testbed.injection.under_test import Account, SystemUnderTest, hook


class RuntimeHook:
    """Switches one fault inside the service process on and off; a restarted process gets it again."""

    def __init__(self, injection: Injection[SystemUnderTest]) -> None:
        self._injection = injection

    async def apply(self) -> None:
        """Tell the target's process to carry out the fault with the parameters of its plan."""
        await hook(self._injection, on=True, parameters=self._injection.plan.parameters)

    async def undo(self) -> None:
        """Tell the target's process to end the fault."""
        await hook(self._injection, on=False)


class ProcessStress(RuntimeHook):
    """A fault that slows the whole process; its callers record in the ledger what they wait for."""

    def __init__(self, injection: Injection[SystemUnderTest]) -> None:
        super().__init__(injection)
        self._account = Account(injection)

    async def apply(self) -> None:
        """Start the stress inside the target's process, and the record of its effects in the ledger."""
        await super().apply()
        await self._account.open()

    async def undo(self) -> None:
        """End the stress inside the target's process, and the record of its effects."""
        await super().undo()
        await self._account.close()
