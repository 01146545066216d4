"""A scripted model that plays the compliance agent on a host's task: it plans, writes, runs, mends what failed, submits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message, Reply, ToolRequest

PLAYBOOK = """\
- hosts: target
  gather_facts: false
  tasks:
    - ansible.builtin.command: sysctl -n net.ipv4.ip_forward
      register: found
      changed_when: false
    - ansible.builtin.copy:
        content: "{{ {'value': found.stdout} | to_json }}"
        dest: collected_data.json
      delegate_to: localhost
"""
POLICY = 'package compliance\n\ndefault compliant := false\n\ncompliant if input.value == "0"\n'
BROKEN = POLICY.replace("compliant if", "compliant")
PLAN = "Ask the running kernel, not a file. One value decides. Then judge it, and try both on an example of each kind."
STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("think", {"thought": PLAN}),
    ("write_file", {"path": "playbook.yml", "content": PLAYBOOK}),
    ("write_file", {"path": "policy.rego", "content": BROKEN}),
    ("opa_check", {}),
    ("write_file", {"path": "policy.rego", "content": POLICY}),
    ("ansible_playbook", {"world": "violating-1"}),
    ("opa_eval", {}),
    ("ansible_playbook", {"world": "compliant-1"}),
    ("opa_eval", {}),
    ("git", {"words": ["add", "-A"]}),
    ("submit", {}),
)


def respond(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
    """Return the next of the steps; the policy with the mistake is mended once the check has refused it."""
    del tools
    tool, arguments = STEPS[sum(message.role == "tool" for message in messages)]
    return Reply(tool_requests=(ToolRequest(id=f"call_{tool}", tool=tool, arguments=arguments),))
