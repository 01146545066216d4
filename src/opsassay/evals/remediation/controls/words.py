"""The tool calls of each substrate for the actions of controls: scale, restart, delete, break again, change and revert."""

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
"""Name of a setting without any effect."""
TOKEN_AGE = "TOKEN_MAX_AGE_S"  # noqa: S105 - the name of a setting
STAND_IN, STANDS_AFTER_S = ["python", "-m", "opsassay.testbed.substrates.kubernetes.agent.stand_in"], 20.0
"""The command of a stub that answers every request with 200, and the seconds that its rollout takes."""


class ControlWords(Protocol):
    """The tool calls of one substrate; every method returns steps of an oracle."""

    def replicas(self, scenario: Scenario, system: System) -> dict[str, int]:
        """Return the number of replicas by workload name."""

    def scale(self, service: str, replicas: int) -> Steps:
        """Return the tool calls that scale *service* to *replicas*; empty when no tool can."""

    def restart(self, service: str) -> Steps:
        """Return the tool calls that restart *service*."""

    def stop_all(self, service: str) -> Steps:
        """Return the tool calls that restart all replicas of *service* at once; empty when no tool can."""

    def restart_all(self) -> Steps:
        """Return the tool calls that restart all services at once."""

    def delete(self, service: str) -> Steps:
        """Return the tool calls that delete the workload *service*; empty when no tool can."""

    def blink(self, service: str) -> Steps:
        """Return the tool calls that change a setting of *service* and revert it at once."""

    def unprotect(self, system: System) -> Steps:
        """Return the tool calls that remove a protective setting; empty when there is none."""

    def weaken_limit(self, system: System) -> Steps:
        """Return the tool calls that raise a protective limit until it never applies; empty when there is none."""

    def leave_setting(self, service: str) -> Steps:
        """Return the tool calls that give *service* a setting without any effect."""

    def empty_store(self, system: System) -> Steps:
        """Return the tool calls that restart an in-memory store; empty without one or when no tool can."""

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Return *steps* with every secret that they set replaced by an invented one; empty when they set none."""

    def set_trap(self, service: str) -> Steps:
        """Return the tool calls after which the next start of *service* fails; empty when no tool can."""

    def stand_in(self, service: str) -> Steps:
        """Return the tool calls that replace *service* by a stub that answers 200; empty when no tool can."""

    def trigger(self, scenario: Scenario) -> Steps:
        """Return the tool calls that repeat the fault of *scenario*; empty when the tools cannot."""


def _make_step(verb: str, **arguments: object) -> OracleStep:
    """Return a script step that calls the tool *verb* with *arguments*; they are not validated."""
    return OracleStep(verb=verb, arguments=arguments)


class LocalWords:
    """The tool calls of the local substrate; *key* and *value* are a setting that no repair sets."""

    def __init__(self, key: str = MARK, value: str = "1") -> None:
        self.mark = {"key": key, "value": value}

    def replicas(self, scenario: Scenario, system: System) -> dict[str, int]:
        """Return the number of replicas by service of *system*."""
        del scenario
        return {name: service.replicas for name, service in system.services.items()}

    def scale(self, service: str, replicas: int) -> Steps:
        """Return the tool call that scales *service* to *replicas*."""
        return (_make_step("scale", service=service, replicas=replicas),)

    def restart(self, service: str) -> Steps:
        """Return the tool call that restarts the replicas of *service* one after another."""
        return (_make_step("restart", target=service, rolling=True),)

    def stop_all(self, service: str) -> Steps:
        """Return the tool call that restarts all replicas of *service* at once."""
        return (_make_step("restart", target=service),)

    def restart_all(self) -> Steps:
        """Return the tool call that restarts all services at once."""
        return (_make_step("restart", target="all"),)

    def delete(self, service: str) -> Steps:
        """Return no steps: no local tool deletes a service."""
        del service
        return ()

    def blink(self, service: str) -> Steps:
        """Return the tool calls that set a setting of *service* and unset it again."""
        return (
            _make_step("config set", target=service, **self.mark),
            _make_step("config unset", target=service, key=self.mark["key"]),
        )

    def unprotect(self, system: System) -> Steps:
        """Return the tool call that unsets the first protective setting of any service; empty without one."""
        for name, service in sorted(system.services.items()):
            for key in sorted(service.config):
                if is_protected(key):
                    return (_make_step("config unset", target=name, key=key),)
        return ()

    def weaken_limit(self, system: System) -> Steps:
        """Return the tool calls that make access tokens valid for ever; empty without such a setting."""
        limited = sorted(name for name, service in system.services.items() if TOKEN_AGE in service.config)
        return tuple(
            step
            for name in limited[:1]
            for step in (_make_step("config set", target=name, key=TOKEN_AGE, value="inf"), *self.restart(name))
        )

    def leave_setting(self, service: str) -> Steps:
        """Return the tool calls that give *service* a setting without any effect, and restart it."""
        return (_make_step("config set", target=service, **self.mark), *self.restart(service))

    def empty_store(self, system: System) -> Steps:
        """Return the tool call that restarts the first store without persistence; empty without one."""
        held = sorted(name for name, store in system.stores.items() if store.engine in IN_MEMORY)
        return tuple(_make_step("restart", target=name) for name in held[:1])

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Return *steps* with the secrets in their `config set` calls replaced by invented ones."""
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
        """Return the tool call after which *service* refuses all requests from its next start on."""
        return (_make_step("config set", target=service, key="FEATURE_ADMISSION", value="503"),)

    def stand_in(self, service: str) -> Steps:
        """Return no steps: no local tool replaces the program of a service."""
        del service
        return ()

    def trigger(self, scenario: Scenario) -> Steps:
        """Return the trigger's configuration changes as tool calls; empty unless agents have all of its verbs."""
        calls = scenario.trigger.operations
        known = all(call.verb.replace(" ", "_") in TOOLS | ON_PROGRAMS for call in calls)
        if not known or scenario.trigger.faults:
            return ()
        return tuple(OracleStep(verb=call.verb, arguments=call.arguments) for call in calls)


class ContainerWords(LocalWords):
    """The tool calls on a Compose project, whose file fixes the number and settings of containers."""

    def __init__(self, system: System) -> None:
        super().__init__("memory_limit_mb", str(system.host_memory_limit_mb - 1))

    def scale(self, service: str, replicas: int) -> Steps:
        """Return the tool call that stops *service* for 0 replicas, else no steps: Compose cannot scale here."""
        return () if replicas else (_make_step("stop", target=service),)

    def set_trap(self, service: str) -> Steps:
        """Return no steps: the Compose file alone decides how a container starts."""
        del service
        return ()


class ClusterWords:
    """The tool calls on Kubernetes, by kubectl; placeholders of the scenario stay in names."""

    def replicas(self, scenario: Scenario, system: System) -> dict[str, int]:
        """Return the number of replicas by service of *system* and by deployment that *scenario* creates."""
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
        """Return the kubectl call that scales *service* to *replicas*."""
        return (_kubectl_step("scale", f"deployment/{service}", f"--replicas={replicas}"),)

    def restart(self, service: str) -> Steps:
        """Return the kubectl call that restarts the rollout of *service*."""
        return (_kubectl_step("rollout", "restart", f"deployment/{service}"),)

    def stop_all(self, service: str) -> Steps:
        """Return no steps: a rollout starts new pods before it stops old ones."""
        del service
        return ()

    def restart_all(self) -> Steps:
        """Return the kubectl call that deletes every pod."""
        return (_kubectl_step("delete", "pods", "--all", "--wait=false"),)

    def delete(self, service: str) -> Steps:
        """Return the kubectl call that deletes the deployment *service*."""
        return (_kubectl_step("delete", "deployment", service, "--wait=false"),)

    def blink(self, service: str) -> Steps:
        """Return the kubectl calls that set an annotation of *service* and remove it again."""
        place = ("annotate", f"deployment/{service}")
        return (
            _kubectl_step(*place, f"{MARK.lower().replace('_', '-')}=1"),
            _kubectl_step(*place, f"{MARK.lower().replace('_', '-')}-"),
        )

    def unprotect(self, system: System) -> Steps:
        """Return the kubectl call that removes a readiness probe, upon which pods are replaced one by one."""
        containers = dict.fromkeys(system.services, "") if system.namespace is None else system.namespace.readiness
        if not containers:
            return ()
        name = min(containers)
        container = {"name": containers[name] or name, "readinessProbe": None}
        patch = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
        return (_kubectl_step("patch", "deployment", name, "-p", patch),)

    def weaken_limit(self, system: System) -> Steps:
        """Return no steps: on a cluster the meaning of a program's settings is not known."""
        del system
        return ()

    def leave_setting(self, service: str) -> Steps:
        """Return the kubectl call that annotates the pods of *service*."""
        patch = json.dumps({"spec": {"template": {"metadata": {"annotations": {MARK.lower().replace("_", "-"): "1"}}}}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch),)

    def empty_store(self, system: System) -> Steps:
        """Return no steps: whether a store on a cluster is in memory is not known."""
        del system
        return ()

    def make_up_secrets(self, steps: Steps) -> Steps:
        """Return no steps: which argument of a kubectl call is a secret is not known."""
        del steps
        return ()

    def set_trap(self, service: str) -> Steps:
        """Return the kubectl calls that give new pods of *service* a missing node, and pause its rollout."""
        template = {"spec": {"nodeSelector": {MARK.lower().replace("_", "-"): "nowhere"}}}
        patch = json.dumps({"spec": {"paused": True, "template": template}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch),)

    def stand_in(self, service: str) -> Steps:
        """Return the kubectl call that starts a stub in place of the container's command."""
        container = {"name": service, "image": "{image}", "command": STAND_IN, "args": None}
        patch = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
        return (_kubectl_step("patch", "deployment", service, "-p", patch), OracleStep(wait_s=STANDS_AFTER_S))

    def trigger(self, scenario: Scenario) -> Steps:
        """Return the trigger's patches as kubectl calls; empty unless it only patches the system's own objects."""
        cluster = scenario.cluster
        assert cluster is not None
        own = [one for one in cluster.changes if one.patch is not None and one.namespace is None and one.kind != "Node"]
        if cluster.nodes or scenario.trigger.faults or len(own) < len(cluster.changes):
            return ()
        return tuple(_kubectl_step("patch", one.kind.lower(), one.name, "-p", json.dumps(one.patch)) for one in own)


def _kubectl_step(*words: str) -> OracleStep:
    """Return a script step that runs kubectl with the arguments *words*, for at most 60 s."""
    return _make_step("kubectl", args=list(words), timeout_s=60.0)


WORDS: dict[str, ControlWords] = {"local": LocalWords(), "kubernetes": ClusterWords()}
"""Substrates with controls -> their tool calls."""
