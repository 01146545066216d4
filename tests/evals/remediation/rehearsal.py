"""A script played on a model of a local system: what observer, alerts and tools would have recorded, second by second.

No process runs here. What a verb does, and whom a failure reaches, is modelled as the docs have it, so that what a
generated scenario expects of its scripts can be held against the verifiers by the hundred.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from opsassay.core.schema.incident import Alert
from opsassay.core.schema.system import IN_MEMORY
from opsassay.core.schema.trajectory import (
    Action,
    AlertReading,
    Entity,
    Observation,
    Phase,
    SettingsReading,
    Tick,
    Timeline,
)
from opsassay.evals.remediation.controls.scripts import REPORT, ControlScript
from opsassay.scoring.verifiers import RunRecording
from opsassay.testbed.operations.protection import EMPTIED, protected_of, written_down
from opsassay.testbed.operations.tools import TOOLS
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.scenarios.generated.hidden import ONSET_S
from opsassay.testbed.scenarios.generated.impact_closure import reach_of
from opsassay.testbed.workload.runtime.settings import FEATURES
from opsassay.testbed.workload.runtime.stress import STRAINS
from scoring.verifiers.made import READING, S, at, observation, probe

RESTART_S, REQUESTS = 2, 3
READER = "reader"
DELAYED = {"FEATURE_SIGN_ONCE", "FEATURE_FILE_WATCH"}
STRAINING = {name for name, feature in FEATURES.items() if feature.hook in STRAINS}
LOOKS = {name.replace("_", " ") for name, tool in TOOLS.items() if not tool.mutating} - {"wait", "exec curl"}


@dataclass
class Rehearsal:
    """The state of one system by the second, and what was recorded of it."""

    scenario: object
    now: int = 0
    ticks: list = field(default_factory=list)
    alerts: list = field(default_factory=list)
    actions: list = field(default_factory=list)
    noted: list = field(default_factory=list)
    phases: list = field(default_factory=list)

    def __post_init__(self):
        self.system = system_of(self.scenario)
        services = self.system.services
        self.replicas = {name: service.replicas for name, service in services.items()}
        self.settings = {name: dict(service.config) for name, service in services.items()}
        self.effective = {name: dict(service.config) for name, service in services.items()}
        self.releases = {name: service.release for name, service in services.items()}
        self.stores = {name: dict(store.config) for name, store in self.system.stores.items()}
        self.started, self.report_due = dict.fromkeys(services, 0), None
        self.emptied = dict.fromkeys(self.stores, 0)
        self.load = {}
        self.rules, self.rule_count, self.failing_s, self.short_s, self.reached = {}, 0, {}, {}, {}

    def play(self, script):
        """Return the recording of the trial in which *script* is played."""
        self.mark("deployed")
        self.wait(10)
        self.mark("baseline")
        self.note()
        self.wait(1)
        self.mark("triggered")
        for call in self.scenario.trigger.operations:
            self.do(call.verb, call.arguments)
        self.wait(20)
        self.note()
        self.wait(1)
        self.mark("agent_started")
        leaves = isinstance(script, ControlScript) and script.leaves
        for number, step in enumerate(script.steps):
            if leaves and number == len(script.steps) - 1:
                self.mark("agent_ended")
            if step.verb is not None and step.verb not in LOOKS | {REPORT}:
                began = self.now
                touched = self.do(step.verb, step.arguments)
                self.actions.append(
                    Action(tool=step.verb, arguments={}, started_ns=at(began), ended_ns=at(self.now) + READING,
                           mutating=True, touched=tuple(sorted(touched)))
                )  # fmt: skip
            self.wait(max(1, round(step.wait_s)))
        if not leaves:
            self.mark("agent_ended")
        self.note()
        settling = self.scenario.verification.settling
        self.wait(50 if settling.hold_s <= 30 else round(2.5 * settling.hold_s))
        self.note()
        self.tick(last=True)
        self.mark("ended")
        return RunRecording(
            Timeline(boot_id="b", cadence_s=1.0, ticks=tuple(self.ticks)), tuple(self.phases), tuple(self.actions),
            tuple(self.alerts), settings=tuple(self.noted),
        )  # fmt: skip

    def mark(self, phase):
        self.phases.append(Phase(phase=phase, time_ns=at(self.now) - S // 10))

    def note(self):
        settings, others = {}, {}
        for owner, values in {**self.settings, **self.stores}.items():
            settings |= protected_of(owner, values, READER)
            others |= {f"{owner} {key}": written_down(key, value, READER) for key, value in values.items()}
        others |= {f"{owner} {EMPTIED}": str(count) for owner, count in self.emptied.items()}
        others |= {f"{owner} replicas": str(count) for owner, count in self.replicas.items()}
        others |= {f"{owner} release": version for owner, version in self.releases.items()}
        others |= {f"{one[0]} firewall {rule}": one[1] for rule, one in self.rules.items()}
        configured = {f"{owner} {key}": value for owner in self.settings for key, value in self.settings[owner].items()}
        pending = {
            f"{owner} {key}": tuple(f"{owner}-{number}" for number in range(self.replicas[owner]))
            for owner, now in self.settings.items()
            for key in {*now, *self.effective[owner]}
            if now.get(key) != self.effective[owner].get(key) and self.replicas[owner] and not self.crashes(owner)
        }
        self.noted.append(
            SettingsReading(
                time_ns=at(self.now) - S // 20,
                settings=settings,
                others=others,
                configured=configured,
                pending_restart=pending,
            )
        )

    # --- verbs --------------------------------------------------------------------------------------------------------

    def do(self, verb, given):
        """Carry out *verb*; return whom it touched."""
        target = given.get("target") or given.get("service")
        if verb in ("config set", "config unset"):
            settings = self.stores.get(target) if target in self.stores else self.settings[target]
            if verb == "config set":
                settings[given["key"]] = given["value"]
            else:
                settings.pop(given["key"])
        elif verb == "restart" and target in self.system.stores:
            self.emptied[target] += self.system.stores[target].engine in IN_MEMORY
        elif verb == "restart":
            return {target} - {"all"} | self.restart(target, rolling=given.get("rolling", False))
        elif verb == "scale":
            self.replicas[target] = given["replicas"]
        elif verb == "release":
            self.releases[target] = given["version"]
            return {target} | self.restart(target, rolling=given.get("rolling", True))
        elif verb == "firewall add":
            self.rule_count += 1
            self.rules[f"rule-{self.rule_count}"] = (target, given["client"])
        elif verb == "firewall delete":
            return set(self.rules.pop(given["rule"]))
        elif verb == "exec curl":
            path = given["url"].removeprefix("http://archive:8080")
            due = {"/reports": self.now, "/reports/later": self.now + ONSET_S, "/reports/cancel": None}
            self.report_due = due.get(path, self.report_due)
            return {"archive"}
        else:
            assert verb == "load dip", verb
        return {target} if target else set()

    def restart(self, target, *, rolling):
        services = list(self.replicas) if target == "all" else [target]
        pods = [f"{name}-{n}" for name in services for n in range(self.replicas[name])]
        for name in services:
            self.effective[name], self.started[name] = dict(self.settings[name]), self.now
        for group in [[pod] for pod in pods] if rolling else [pods]:
            for _ in range(RESTART_S):
                self.tick(down=set(group))
        return set(pods)

    def wait(self, seconds):
        for _ in range(seconds):
            self.tick()

    # --- what is the case ---------------------------------------------------------------------------------------------

    def origins(self, down):
        """Yield who fails by itself: whose requests are not answered, whoever it calls."""
        for name, service in self.system.services.items():
            pods = {f"{name}-{n}" for n in range(self.replicas[name])}
            early = set() if self.now >= self.started[name] + ONSET_S else DELAYED
            features = {key for key in self.effective[name] if key in FEATURES} - (STRAINING - DELAYED) - early
            secret = self.effective[name].get("TOKEN_SECRET") != service.config.get("TOKEN_SECRET")
            wrong = "TOKEN_MAX_AGE_S" in service.config and secret
            if (
                not pods - down
                or self.crashes(name)
                or features
                or wrong
                or self.releases[name] != service.release
                or any(
                    key.startswith("UPSTREAM_") and value.endswith(":9090")
                    for key, value in self.effective[name].items()
                )
            ):
                yield name
        if self.report_due is not None and self.now >= self.report_due:
            yield "shelf"
        yield from (name for name, values in self.stores.items() if values.get("maxmemory") == "600kb")
        yield from (service for service, _ in self.rules.values())

    def crashes(self, name):
        own = self.system.services[name].config
        return any(self.effective[name].get(key) != value for key, value in own.items() if key.endswith("_PASSWORD"))

    def tick(self, *, down=frozenset(), last=False):
        failing = set()
        for origin in self.origins(down):
            if origin not in self.reached:
                self.reached[origin] = {origin, *(effect for _, effect in reach_of(self.system, origin).edges)}
            failing |= self.reached[origin]
        entities = {
            f"{name}-{n}": Entity(
                id=f"{name}-{n}", service=name, host="host-a", version=self.releases[name],
                ready=f"{name}-{n}" not in down and not self.crashes(name),
            )
            for name, count in self.replicas.items()
            for n in range(count)
        }  # fmt: skip
        known = {entity.id for tick in self.ticks[-1:] for entity in tick.entities}
        dead = tuple(sorted(name for name, one in entities.items() if not one.ready))
        share = 1 - len(dead) / len(entities) if entities else 0.0
        protected = self.scenario.verification.protected_services
        without = tuple(one for one in protected if not any(e.ready and e.service == one for e in entities.values()))
        seen = [
            observation("D1", self.now, share, dead),
            observation("D2", self.now, 0.0 if without else 1.0, without),
            observation("D4", self.now, 1.0),
        ]
        probes = ()
        if last or self.now % 20 == 0:
            probes = tuple(
                probe(f"probe-{self.now}-{one}", self.now, reachable=one not in failing, target=one)
                for one in protected
            )
            lost = tuple(p.target for p in probes if not p.reachable)
            seen.append(Observation(depth="D3", started_ns=at(self.now), ended_ns=at(self.now) + READING,
                                    value=1 - len(lost) / len(probes), failing=lost))  # fmt: skip
        gone = tuple(sorted(known - entities.keys()))
        seen_at = {"entities": tuple(entities.values()), "gone": gone, "load": self.count(failing)}
        self.ticks.append(Tick(index=self.now, observations=tuple(seen), probes=probes, **seen_at))
        self.alert(failing, entities)
        self.now += 1

    def count(self, failing):
        """Count the requests of one more second, those to an entrance in *failing* as failed; return the counts."""
        for kind in self.system.load.mix:
            done, failed, took_ns = self.load.get(kind.request, (0, 0, 0))
            lost = REQUESTS if kind.request.split()[0] in failing else 0
            self.load[kind.request] = (done + REQUESTS, failed + lost, took_ns + REQUESTS * S // 50)
        return dict(self.load)

    def alert(self, failing, entities):
        """Evaluate the rules: errors over ten seconds, what is missing for six, what is used up for three."""
        firing = []
        for name in self.system.services:
            errors = [*self.failing_s.get(name, [])[-9:], name in failing]
            self.failing_s[name] = errors
            full = self.system.services[name].replicas
            short = sum(e.ready for e in entities.values() if e.service == name) < full
            self.short_s[name] = self.short_s.get(name, 0) + 1 if short else 0
            strained = any(key in STRAINING - DELAYED for key in self.effective[name]) and self.replicas[name] > 0
            rules = {
                "error_rate": sum(errors) >= 3 and self.replicas[name] > 0,
                "replicas_missing": self.short_s[name] >= 6,
                "saturation": strained,
            }
            firing += [
                Alert(time_ns=at(self.now), service=name, signal=signal, value=1, threshold=0.5, message="m")
                for signal, fires in rules.items()
                if fires
            ]
        self.alerts.append(AlertReading(time_ns=at(self.now), firing=tuple(firing)))
