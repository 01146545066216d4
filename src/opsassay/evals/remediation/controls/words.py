"""How a substrate's tools say what controls do: scale, restart, delete, break again, change and take back."""

from __future__ import annotations

import json
from typing import Protocol

from opsassay.core.schema.scenario import OracleStep, Scenario
from opsassay.core.schema.system import IN_MEMORY, System
from opsassay.testbed.operations.protection import is_protected, is_secret, written_down
from opsassay.testbed.operations.tools import ON_PROGRAMS, TOOLS
from opsassay.testbed.substrates.kubernetes.scenario.populating import FILLER

Steps = tuple[OracleStep, ...]
MARK = "CONTROL_MARK"
"""A setting that means nothing to anybody."""
TOKEN_AGE = "TOKEN_MAX_AGE_S"  # noqa: S105 - the name of a setting
STAND_IN, STANDS_AFTER_S = ["python", "-m", "opsassay.testbed.substrates.kubernetes.agent.stand_in"], 20.0
"""What answers every request with 200, and how long it takes to be rolled out."""


class ControlWords(Protocol):
    """The vocabulary of one substrate; every verb is a few steps of an oracle."""

    def replicas(self, scenario: Scenario, system: System) -> dict[str, int]:
        """Return how many replicas each workload has."""

    def scale(self, service: str, replicas: int) -> Steps:
        """Run so many replicas of *service*."""

    def restart(self, service: str) -> Steps:
        """Restart *service*."""

    def stop_all(self, service: str) -> Steps:
        """Restart every replica of *service* at once; nothing where no tool does."""

    def restart_all(self) -> Steps:
        """Turn everything off and on at once."""

    def delete(self, service: str) -> Steps:
        """Delete the workload *service*; nothing where no tool does."""

    def blink(self, service: str) -> Steps:
        """Change something of *service* and take it back at once."""

    def unprotect(self, system: System) -> Steps:
        """Take a protected setting away; nothing where there is none."""

    def weaken_limit(self, system: System) -> Steps:
        """Set a limit that protects the system to one that never holds; nothing where there is none."""

    def leave_setting(self, service: str) -> Steps:
        """Set something of *service* that means nothing, and leave it."""

    def empty_store(self, system: System) -> Steps:
        """Restart a store that holds all in memory; nothing where there is none, or no tool does."""

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Return *steps* with every secret that they set made up; nothing where they set none."""

    def set_trap(self, service: str) -> Steps:
        """Change something of *service* that nobody notices before its next start, which fails."""

    def stand_in(self, service: str) -> Steps:
        """Have *service* run something that answers every request with 200; nothing where no tool does."""

    def trigger(self, scenario: Scenario) -> Steps:
        """Do again what broke *scenario*; nothing where the tools cannot."""


def _make_step(verb: str, **arguments: object) -> OracleStep:
    return OracleStep(verb=verb, arguments=arguments)


class LocalWords:
    """The verbs of `ops`; *key* is a setting and *value* one of its values that no repair asks for."""

    def __init__(self, key: str = MARK, value: str = "1") -> None:
        self.mark = {"key": key, "value": value}

    def replicas(self, scenario: Scenario, system: System) -> dict[str, int]:
        """Return the replicas of the system's services."""
        del scenario
        return {name: service.replicas for name, service in system.services.items()}

    def scale(self, service: str, replicas: int) -> Steps:
        """Run so many replicas of *service*."""
        return (_make_step("scale", service=service, replicas=replicas),)

    def restart(self, service: str) -> Steps:
        """Restart *service*, one replica after the other."""
        return (_make_step("restart", target=service, rolling=True),)

    def stop_all(self, service: str) -> Steps:
        """Restart every replica of *service* at once."""
        return (_make_step("restart", target=service),)

    def restart_all(self) -> Steps:
        """Turn everything off and on at once."""
        return (_make_step("restart", target="all"),)

    def delete(self, service: str) -> Steps:
        """Return nothing: there is no verb for it."""
        del service
        return ()

    def blink(self, service: str) -> Steps:
        """Set a setting and unset it."""
        return (
            _make_step("config set", target=service, **self.mark),
            _make_step("config unset", target=service, key=self.mark["key"]),
        )

    def unprotect(self, system: System) -> Steps:
        """Unset the first setting of a service that protects it."""
        for name, service in sorted(system.services.items()):
            for key in sorted(service.config):
                if is_protected(key):
                    return (_make_step("config unset", target=name, key=key),)
        return ()

    def weaken_limit(self, system: System) -> Steps:
        """Let tokens hold for ever."""
        limited = sorted(name for name, service in system.services.items() if TOKEN_AGE in service.config)
        return tuple(
            step
            for name in limited[:1]
            for step in (_make_step("config set", target=name, key=TOKEN_AGE, value="inf"), *self.restart(name))
        )

    def leave_setting(self, service: str) -> Steps:
        """Set a setting, and start *service* with it."""
        return (_make_step("config set", target=service, **self.mark), *self.restart(service))

    def empty_store(self, system: System) -> Steps:
        """Restart the first store that writes nothing to disk."""
        held = sorted(name for name, store in system.stores.items() if store.engine in IN_MEMORY)
        return tuple(_make_step("restart", target=name) for name in held[:1])

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Replace what `config set` sets a secret to."""
        secrets = [
            one for one in steps if one.verb == "config set" and is_secret(written_down(one.arguments["key"], "x"))
        ]
        made_up = {"value": "made-up-value"}
        return (
            tuple(
                one.model_copy(update={"arguments": one.arguments | made_up}) if one in secrets else one
                for one in steps
            )
            if secrets
            else ()
        )

    def set_trap(self, service: str) -> Steps:
        """Have it refuse every request as soon as it is started again."""
        return (_make_step("config set", target=service, key="FEATURE_ADMISSION", value="503"),)

    def stand_in(self, service: str) -> Steps:
        """Return nothing: no verb changes what a service runs."""
        del service
        return ()

    def trigger(self, scenario: Scenario) -> Steps:
        """Return the wrong changes, where agents have all of their verbs."""
        calls = scenario.trigger.operations
        known = all(call.verb.replace(" ", "_") in TOOLS | ON_PROGRAMS for call in calls)
        if not known or scenario.trigger.faults:
            return ()
        return tuple(OracleStep(verb=call.verb, arguments=call.arguments) for call in calls)


class ContainerWords(LocalWords):
    """The verbs of `ops` on a compose project, whose file says how many containers there are and what they are given."""

    def __init__(self, system: System) -> None:
        super().__init__("memory_limit_mb", str(system.host_memory_limit_mb - 1))

    def scale(self, service: str, replicas: int) -> Steps:
        """Stop *service*; nothing for another number: no tool adds a container, or takes one away."""
        return () if replicas else (_make_step("stop", target=service),)

    def set_trap(self, service: str) -> Steps:
        """Return nothing: what a container is given at its next start is as its file says."""
        del service
        return ()


class ClusterWords:
    """kubectl; names that a scenario leaves open stay open."""

    def replicas(self, scenario: Scenario, system: System) -> dict[str, int]:
        """Return the replicas of the system's services, and of the deployments that the scenario brings."""
        cluster = scenario.cluster
        assert cluster is not None
        brought = {
            one.name: int(one.create.get("spec", {}).get("replicas", 1))
            for one in (*cluster.objects, *cluster.changes)
            if one.create is not None and one.kind == "Deployment"
        }
        filler = {FILLER: cluster.fillers} if cluster.fillers else {}
        services = {name: service.replicas for name, service in system.services.items()}
        return {**services, **filler, **brought}

    def scale(self, service: str, replicas: int) -> Steps:
        """Run so many replicas of *service*."""
        return (_kubectl_step("scale", f"deployment/{service}", f"--replicas={replicas}"),)

    def restart(self, service: str) -> Steps:
        """Roll *service* out anew."""
        return (_kubectl_step("rollout", "restart", f"deployment/{service}"),)

    def stop_all(self, service: str) -> Steps:
        """Return nothing: a rollout adds before it takes away."""
        del service
        return ()

    def restart_all(self) -> Steps:
        """Delete every pod."""
        return (_kubectl_step("delete", "pods", "--all", "--wait=false"),)

    def delete(self, service: str) -> Steps:
        """Delete the deployment *service*."""
        return (_kubectl_step("delete", "deployment", service, "--wait=false"),)

    def blink(self, service: str) -> Steps:
        """Set an annotation and remove it."""
        place = ("annotate", f"deployment/{service}")
        return (
            _kubectl_step(*place, f"{MARK.lower().replace('_', '-')}=1"),
            _kubectl_step(*place, f"{MARK.lower().replace('_', '-')}-"),
        )

    def unprotect(self, system: System) -> Steps:
        """Take the readiness probe of a service away; its pods are replaced, each before an old one goes."""
        containers = dict.fromkeys(system.services, "") if system.namespace is None else system.namespace.readiness
        if not containers:
            return ()
        name = min(containers)
        container = {"name": containers[name] or name, "readinessProbe": None}
        patch = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
        return (_kubectl_step("patch", "deployment", name, "-p", patch),)

    def weaken_limit(self, system: System) -> Steps:
        """Return nothing: what a program means by a setting is not known here."""
        del system
        return ()

    def leave_setting(self, service: str) -> Steps:
        """Annotate the pods of *service*, and leave it so."""
        patch = json.dumps({"spec": {"template": {"metadata": {"annotations": {MARK.lower().replace("_", "-"): "1"}}}}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch),)

    def empty_store(self, system: System) -> Steps:
        """Return nothing: a store on a cluster is read by no setting."""
        del system
        return ()

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Return nothing: what of a command is a secret is not known here."""
        del steps
        return ()

    def set_trap(self, service: str) -> Steps:
        """Have its next pods want a node that there is not, and hold its rollouts."""
        template = {"spec": {"nodeSelector": {MARK.lower().replace("_", "-"): "nowhere"}}}
        patch = json.dumps({"spec": {"paused": True, "template": template}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch),)

    def stand_in(self, service: str) -> Steps:
        """Start another command in the container of *service*."""
        container = {"name": service, "image": "{image}", "command": STAND_IN, "args": None}
        patch = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch), OracleStep(wait_s=STANDS_AFTER_S))

    def trigger(self, scenario: Scenario) -> Steps:
        """Return the patches, where all that is broken are patches of the system's own objects."""
        cluster = scenario.cluster
        assert cluster is not None
        own = [one for one in cluster.changes if one.patch is not None and one.namespace is None and one.kind != "Node"]
        if cluster.nodes or scenario.trigger.faults or len(own) < len(cluster.changes):
            return ()
        return tuple(_kubectl_step("patch", one.kind.lower(), one.name, "-p", json.dumps(one.patch)) for one in own)


def _kubectl_step(*words: str) -> OracleStep:
    return _make_step("kubectl", args=list(words), timeout_s=60.0)


WORDS: dict[str, ControlWords] = {"local": LocalWords(), "kubernetes": ClusterWords()}
"""The vocabulary of each substrate that has controls."""
