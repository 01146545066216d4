"""JSON lines: what is torn at the end is dropped, what is broken before it is named with file and line."""

import itertools
import tracemalloc

import pytest

from opsassay.core.errors import DatapackError
from opsassay.core.schema.json_lines import append_line, follow_json_lines, read_json_lines, read_nouns, whole_lines
from opsassay.core.schema.trajectory import Phase

PHASES = [Phase(phase=name, time_ns=at) for at, name in enumerate(("deployed", "baseline", "triggered"))]


@pytest.fixture
def phases(tmp_path):
    path = tmp_path / "phases.jsonl"
    for phase in PHASES:
        append_line(path, phase)
    return path


def test_every_cut_of_the_file_gives_the_lines_that_are_whole(phases):
    content = phases.read_bytes()
    for cut in range(len(content) + 1):
        phases.write_bytes(content[:cut])
        # a last line may be whole without its end
        whole = content[:cut].count(b"\n") + (content[cut : cut + 1] == b"\n")
        assert list(read_nouns(phases, Phase)) == PHASES[:whole]
        assert [Phase.model_validate(line) for line in whole_lines(content[:cut])] == PHASES[:whole]


def test_a_broken_line_before_the_last_is_named(phases):
    first, _, rest = phases.read_bytes().partition(b"\n")
    phases.write_bytes(first + b"\n\n{torn\n" + rest)
    lines = read_json_lines(phases)
    assert next(lines)["phase"] == "deployed"
    with pytest.raises(DatapackError, match=rf"{phases}:3: not a line of JSON"):
        next(lines)
    assert [line["phase"] for line in whole_lines(phases.read_bytes())] == ["deployed", "baseline", "triggered"]


def test_a_last_line_that_ended_is_not_torn(phases):
    with phases.open("ab") as file:
        file.write(b"{torn\n")
    with pytest.raises(DatapackError, match=":4: not a line of JSON"):
        list(read_json_lines(phases))


def test_a_line_of_another_form_is_named_by_its_field(phases):
    with phases.open("ab") as file:
        file.write(b'{"phase": "ended", "time_ns": "noon"}\n')
    with pytest.raises(DatapackError, match=r"phases\.jsonl: a line is no phase: time_ns: "):
        list(read_nouns(phases, Phase))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatapackError, match=r"Cannot read .*none\.jsonl: No such file"):
        list(read_json_lines(tmp_path / "none.jsonl"))


def test_a_growing_file_is_followed_from_where_the_reader_stopped(phases):
    assert list(follow_json_lines(phases.with_name("later.jsonl"), 0)) == []
    (end, first), *_ = follow_json_lines(phases, 0)
    assert first["phase"] == "deployed"
    with phases.open("ab") as file:
        file.write(b'{"phase": ')
        file.flush()
        rest = list(follow_json_lines(phases, end))
        assert [line["phase"] for _, line in rest] == ["baseline", "triggered"]
        file.write(b'"ended"}\n')
    assert [line for _, line in follow_json_lines(phases, rest[-1][0])] == [{"phase": "ended"}]


def test_memory_is_that_of_a_line(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_bytes(b'{"text": "' + b"x" * 1000 + b'"}\n')
    path.write_bytes(path.read_bytes() * 20_000)
    tracemalloc.start()
    assert sum(1 for _ in itertools.islice(read_json_lines(path), 20_000)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
