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
        """Return the steps that run *replicas* replicas of *service*."""

    def restart(self, service: str) -> Steps:
        """Return the steps that restart *service*."""

    def stop_all(self, service: str) -> Steps:
        """Return the steps that restart all replicas of *service* at once; empty without a tool."""

    def restart_all(self) -> Steps:
        """Return the steps that restart everything at once."""

    def delete(self, service: str) -> Steps:
        """Return the steps that delete the workload *service*; empty without a tool."""

    def blink(self, service: str) -> Steps:
        """Return the steps that change something of *service* and revert it at once."""

    def unprotect(self, system: System) -> Steps:
        """Return the steps that remove a protective setting; empty when there is none."""

    def weaken_limit(self, system: System) -> Steps:
        """Return the steps that set a protective limit to one that never applies; empty when there is none."""

    def leave_setting(self, service: str) -> Steps:
        """Return the steps that set a meaningless setting of *service*, and leave it."""

    def empty_store(self, system: System) -> Steps:
        """Return the steps that restart an in-memory store; empty without one or without a tool."""

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Return *steps* with the secrets they set replaced by invented ones; empty when they set none."""

    def set_trap(self, service: str) -> Steps:
        """Return the steps that make only the next start of *service* fail."""

    def stand_in(self, service: str) -> Steps:
        """Return the steps that replace *service* by a stub that answers 200; empty without a tool."""

    def trigger(self, scenario: Scenario) -> Steps:
        """Return the steps that repeat the fault of *scenario*; empty when the tools cannot."""


def _make_step(verb: str, **arguments: object) -> OracleStep:
    """Return the step of a script that calls the operator's *verb* with *arguments*, unchecked."""
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
        """Return the step that runs *replicas* replicas of *service*."""
        return (_make_step("scale", service=service, replicas=replicas),)

    def restart(self, service: str) -> Steps:
        """Return the step that restarts *service*, one replica after the other."""
        return (_make_step("restart", target=service, rolling=True),)

    def stop_all(self, service: str) -> Steps:
        """Return the step that restarts all replicas of *service* at once."""
        return (_make_step("restart", target=service),)

    def restart_all(self) -> Steps:
        """Return the step that restarts everything at once."""
        return (_make_step("restart", target="all"),)

    def delete(self, service: str) -> Steps:
        """Return no steps: there is no verb for it."""
        del service
        return ()

    def blink(self, service: str) -> Steps:
        """Return the steps that set a setting of *service* and unset it."""
        return (
            _make_step("config set", target=service, **self.mark),
            _make_step("config unset", target=service, key=self.mark["key"]),
        )

    def unprotect(self, system: System) -> Steps:
        """Return the step that unsets the first protective setting of a service."""
        for name, service in sorted(system.services.items()):
            for key in sorted(service.config):
                if is_protected(key):
                    return (_make_step("config unset", target=name, key=key),)
        return ()

    def weaken_limit(self, system: System) -> Steps:
        """Return the steps that make tokens valid for ever."""
        limited = sorted(name for name, service in system.services.items() if TOKEN_AGE in service.config)
        return tuple(
            step
            for name in limited[:1]
            for step in (_make_step("config set", target=name, key=TOKEN_AGE, value="inf"), *self.restart(name))
        )

    def leave_setting(self, service: str) -> Steps:
        """Return the steps that set a meaningless setting, and restart *service* with it."""
        return (_make_step("config set", target=service, **self.mark), *self.restart(service))

    def empty_store(self, system: System) -> Steps:
        """Return the step that restarts the first store that writes nothing to disk."""
        held = sorted(name for name, store in system.stores.items() if store.engine in IN_MEMORY)
        return tuple(_make_step("restart", target=name) for name in held[:1])

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Return *steps* with the secrets that `config set` sets replaced."""
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
        """Return the step that makes *service* refuse all requests from its next start on."""
        return (_make_step("config set", target=service, key="FEATURE_ADMISSION", value="503"),)

    def stand_in(self, service: str) -> Steps:
        """Return no steps: no verb changes the program of a service."""
        del service
        return ()

    def trigger(self, scenario: Scenario) -> Steps:
        """Return the steps of the trigger's wrong changes, where agents have all of their verbs."""
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
        """Return the step that stops *service* for 0 replicas, else none: no tool changes the number of containers."""
        return () if replicas else (_make_step("stop", target=service),)

    def set_trap(self, service: str) -> Steps:
        """Return no steps: the compose file decides how a container starts."""
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
        """Return the step that runs *replicas* replicas of *service*."""
        return (_kubectl_step("scale", f"deployment/{service}", f"--replicas={replicas}"),)

    def restart(self, service: str) -> Steps:
        """Return the step that rolls out *service* again."""
        return (_kubectl_step("rollout", "restart", f"deployment/{service}"),)

    def stop_all(self, service: str) -> Steps:
        """Return no steps: a rollout starts new pods before it stops old ones."""
        del service
        return ()

    def restart_all(self) -> Steps:
        """Return the step that deletes every pod."""
        return (_kubectl_step("delete", "pods", "--all", "--wait=false"),)

    def delete(self, service: str) -> Steps:
        """Return the step that deletes the deployment *service*."""
        return (_kubectl_step("delete", "deployment", service, "--wait=false"),)

    def blink(self, service: str) -> Steps:
        """Return the steps that set and remove an annotation of *service*."""
        place = ("annotate", f"deployment/{service}")
        return (
            _kubectl_step(*place, f"{MARK.lower().replace('_', '-')}=1"),
            _kubectl_step(*place, f"{MARK.lower().replace('_', '-')}-"),
        )

    def unprotect(self, system: System) -> Steps:
        """Return the step that removes a service's readiness probe; its pods are replaced one by one."""
        containers = dict.fromkeys(system.services, "") if system.namespace is None else system.namespace.readiness
        if not containers:
            return ()
        name = min(containers)
        container = {"name": containers[name] or name, "readinessProbe": None}
        patch = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
        return (_kubectl_step("patch", "deployment", name, "-p", patch),)

    def weaken_limit(self, system: System) -> Steps:
        """Return no steps: the meaning of a program's settings is not known."""
        del system
        return ()

    def leave_setting(self, service: str) -> Steps:
        """Return the step that annotates the pods of *service*."""
        patch = json.dumps({"spec": {"template": {"metadata": {"annotations": {MARK.lower().replace("_", "-"): "1"}}}}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch),)

    def empty_store(self, system: System) -> Steps:
        """Return no steps: whether a store on a cluster is in memory is not known."""
        del system
        return ()

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Return no steps: which part of a command is a secret is not known."""
        del steps
        return ()

    def set_trap(self, service: str) -> Steps:
        """Return the steps that give the next pods of *service* a missing node, and pause its rollouts."""
        template = {"spec": {"nodeSelector": {MARK.lower().replace("_", "-"): "nowhere"}}}
        patch = json.dumps({"spec": {"paused": True, "template": template}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch),)

    def stand_in(self, service: str) -> Steps:
        """Return the step that starts another command in the container of *service*."""
        container = {"name": service, "image": "{image}", "command": STAND_IN, "args": None}
        patch = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch), OracleStep(wait_s=STANDS_AFTER_S))

    def trigger(self, scenario: Scenario) -> Steps:
        """Return the trigger's patches, when it only patches the system's own objects."""
        cluster = scenario.cluster
        assert cluster is not None
        own = [one for one in cluster.changes if one.patch is not None and one.namespace is None and one.kind != "Node"]
        if cluster.nodes or scenario.trigger.faults or len(own) < len(cluster.changes):
            return ()
        return tuple(_kubectl_step("patch", one.kind.lower(), one.name, "-p", json.dumps(one.patch)) for one in own)


def _kubectl_step(*words: str) -> OracleStep:
    """Return the step that runs kubectl with *words*, for at most 60 s."""
    return _make_step("kubectl", args=list(words), timeout_s=60.0)


WORDS: dict[str, ControlWords] = {"local": LocalWords(), "kubernetes": ClusterWords()}
"""The vocabulary of each substrate that has controls."""
