"""Numbers that no clock takes: every option refuses them with a sentence, and so does every file that people write."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from opsassay.cli.groups import load
from opsassay.cli.output import NumberRange
from opsassay.cli.tree import COMMANDS
from opsassay.core.errors import ConfigError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System

NUMBERS = [
    (name, option)
    for name in COMMANDS
    for option in load(name).params
    if isinstance(option.type, click.types.FloatParamType)
]


def test_every_option_with_a_number_is_of_the_type_that_refuses():
    assert len(NUMBERS) >= 12
    assert [(name, option.name) for name, option in NUMBERS if not isinstance(option.type, NumberRange)] == []


@pytest.mark.parametrize("value", ["nan", "inf", "1e400", "1e308"])
@pytest.mark.parametrize(("name", "option"), NUMBERS, ids=lambda part: getattr(part, "name", part))
def test_a_number_that_cannot_be_used_is_refused(name, option, value):
    done = CliRunner().invoke(load(name), [f"{option.opts[0]}={value}"])
    assert done.exit_code == 2
    assert option.opts[0] in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "1e400"])
def test_a_file_with_a_number_that_is_not_finite_is_refused(tmp_path, value):
    system = tmp_path / "system.yaml"
    web = "{operations: {GET /: {steps: [{compute_ms: 1}]}}}"
    system.write_text(
        f"system: one\nservices: {{web: {web}}}\nload: {{rate_rps: {value}, mix: [{{request: web GET /}}]}}\n"
    )
    with pytest.raises(ConfigError, match="rate_rps"):
        load_yaml(system, System)
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"fault: PodKill\ntarget: {{service: web}}\nduration_s: {value}\n")
    with pytest.raises(ConfigError, match="duration_s"):
        load_yaml(plan, FaultPlan)
