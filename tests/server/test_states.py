"""States: nothing but what the tables allow, on every walk; the documentation shows the tables as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from opsassay.server.states import AGENT, BENCHMARK, BUNDLE, HOUR_S, MACHINES, TransitionError, route
from opsassay.ui.platform.cell_words import AGENT_WORDS, BENCHMARK_WORDS, BUNDLE_WORDS

ITBENCH = {
    "benchmark": "NotRegistered NotStarted Queued Running PendingResultUpload Finished Error",
    "bundle": "NotStarted Provisioning Provisioned FaultInjecting FaultInjected Ready Evaluating Evaluated "
    "Terminating Terminated Error",
    "agent": "NotStarted Initializing Ready Executing Finished Error TimedOut Terminating Terminated",
}


@pytest.mark.parametrize("name", MACHINES)
def test_the_states_are_those_of_itbench_and_each_can_be_reached_and_has_a_timeout_or_says_none(name):
    machine = MACHINES[name]
    assert set(machine.following) == set(machine.timeouts) == set(ITBENCH[name].split())
    reached, frontier = {machine.first}, [machine.first]
    while frontier:
        frontier = [after for state in frontier for after in machine.following[state] if after not in reached]
        reached |= set(frontier)
    assert reached == set(ITBENCH[name].split())
    assert machine.expired in machine.following


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_state_with_a_timeout_can_expire(machine):
    for state, longest_s in machine.timeouts.items():
        if longest_s is not None and machine.subject != "agent":
            assert machine.expired in machine.following[state], state


def walk_of(machine):
    class Walk(RuleBasedStateMachine):
        """Ask for any state at any time, as a hostile client does."""

        def __init__(self):
            super().__init__()
            self.present = machine.first

        @rule(desired=st.sampled_from(sorted(machine.following)) | st.text(max_size=12))
        def ask(self, desired):
            allowed = desired in machine.following.get(self.present, ())
            try:
                changed = machine.check(self.present, desired)
            except TransitionError:
                assert not allowed
                assert desired != self.present
                return
            assert changed == allowed
            self.present = desired

        @rule(desired=st.sampled_from(sorted(machine.following)))
        def go(self, desired):
            try:
                way = route(machine, self.present, desired)
            except TransitionError:
                return
            for state in way:
                assert machine.check(self.present, state)
                self.present = state
            assert self.present == desired

        @invariant()
        def what_has_ended_stays_so(self):
            assert self.present in machine.following

    case = Walk.TestCase
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
    return case


TestBenchmarkWalk = walk_of(BENCHMARK)
TestBundleWalk = walk_of(BUNDLE)
TestAgentWalk = walk_of(AGENT)


@pytest.mark.parametrize(
    ("machine", "words"), [(BENCHMARK, BENCHMARK_WORDS), (BUNDLE, BUNDLE_WORDS), (AGENT, AGENT_WORDS)]
)
def test_every_state_has_a_word_of_its_own_for_people(machine, words):
    assert set(words) == set(machine.following)
    assert len(set(words.values())) == len(words)


def test_nothing_follows_an_end():
    for machine in MACHINES.values():
        for end in machine.ends:
            for desired in machine.following:
                if desired != end:
                    with pytest.raises(TransitionError):
                        route(machine, end, desired)


def test_an_agent_does_not_finish_before_it_was_made_ready():
    with pytest.raises(TransitionError, match="cannot become Finished"):
        AGENT.check("NotStarted", "Finished")


def test_the_documentation_draws_the_tables_as_they_are():
    lines = ["| of | state | may become | lasts at most |", "| --- | --- | --- | --- |"]
    for machine in MACHINES.values():
        for state, after in machine.following.items():
            longest = machine.timeouts[state]
            lasts = "no limit" if longest is None else f"{longest / HOUR_S:g} h, then {machine.expired}"
            lines.append(f"| {machine.subject} | {state} | {', '.join(after) or '-'} | {lasts} |")
    page = Path(__file__).parents[2] / "docs" / "platform.md"
    assert "\n".join(lines) in page.read_text()
