"""The chain of events: whatever is changed in a copy is found, by whoever has the public key."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from opsassay.cli.server.verify import command
from opsassay.core.errors import UserError
from opsassay.server.events import FIRST, Signer, hash_of, read_chain, verify_chain, verify_file


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    return Signer.from_folder(tmp_path_factory.mktemp("key"))


@pytest.fixture
def chain(signer):
    events, previous = [], FIRST
    for seq in range(1, 8):
        event = {"seq": seq, "time_ns": seq * 10, "kind": "result", "subject": f"cell-{seq}", "body": '{"passed":true}'}
        digest = hash_of(event, previous)
        signature = signer.key.sign(bytes.fromhex(digest)).hex()
        events.append({**event, "previous": previous, "hash": digest, "signature": signature})
        previous = digest
    return events


def test_a_chain_that_nobody_touched_is_good(chain, signer):
    report = verify_chain(chain, signer.public_hex)
    assert (report.events, report.problem, report.end) == (7, None, chain[-1]["hash"])


def resigned(chain, other):
    """Make the whole chain anew with another key, as whoever has the database but not the key would."""
    previous = FIRST
    for event in chain:
        event["previous"] = previous
        event["hash"] = previous = hash_of(event, previous)
        event["signature"] = other.key.sign(bytes.fromhex(previous)).hex()


TOUCHES = {
    "a body": lambda c, _: c[3].update(body='{"passed":false}'),
    "a time": lambda c, _: c[3].update(time_ns=1),
    "a kind": lambda c, _: c[3].update(kind="other"),
    "a subject": lambda c, _: c[3].update(subject="cell-9"),
    "one left out": lambda c, _: c.pop(3),
    "the first left out": lambda c, _: c.pop(0),
    "two exchanged": lambda c, _: c.insert(2, c.pop(3)),
    "one twice": lambda c, _: c.insert(3, dict(c[3])),
    "a hash": lambda c, _: c[3].update(hash="0" * 64),
    "a signature": lambda c, _: c[3].update(signature="00" * 64),
    "a signature that is none": lambda c, _: c[3].update(signature="zz"),
    "a body with its hash": lambda c, _: c[6].update(body="{}", hash=hash_of({**c[6], "body": "{}"}, c[6]["previous"])),
    "all of it, with another key": resigned,
}  # fmt: skip


@pytest.mark.parametrize("name", TOUCHES)
def test_what_is_touched_is_found(chain, signer, name, tmp_path):
    (tmp_path / "other").mkdir()
    TOUCHES[name](chain, Signer.from_folder(tmp_path / "other"))
    assert verify_chain(chain, signer.public_hex).problem is not None


def test_a_chain_that_was_cut_off_is_found_by_whoever_kept_its_end(chain, signer):
    end = chain[-1]["hash"]
    assert verify_file(chain[:5], signer.public_hex, None).problem is None
    assert "is not in this chain" in verify_file(chain[:5], signer.public_hex, end).problem


def test_both_forms_of_a_copy_are_read_and_the_command_says_what_it_found(chain, signer, tmp_path):
    answer, index = tmp_path / "answer.json", tmp_path / "index.jsonl"
    answer.write_text(json.dumps({"items": chain, "key": signer.public_hex}))
    lines = [
        json.dumps({"table": "users", "row": {"id": "1"}}),
        *(json.dumps({"table": "events", "row": one}) for one in chain),
    ]
    index.write_text("\n".join(lines) + "\n" + '{"table": "ev')
    assert read_chain(answer) == read_chain(index) == chain
    good = CliRunner().invoke(command, [str(index), "--key", signer.public_hex, "--json"])
    assert (good.exit_code, json.loads(good.stdout)["events"]) == (0, 7)
    chain[2]["body"] = "{}"
    answer.write_text(json.dumps({"items": chain}))
    bad = CliRunner().invoke(command, [str(answer), "--key", signer.public_hex])
    assert bad.exit_code == 1
    assert "event 3 was changed" in bad.stdout


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"items": 3}', '{"items": [{}]}', "no json"])
def test_a_file_without_events_is_one_sentence(text, tmp_path):
    (tmp_path / "x").write_text(text)
    with pytest.raises(UserError, match="holds no events"):
        read_chain(tmp_path / "x")


@pytest.mark.parametrize("key", ["", "zz", "00", "0" * 63])
def test_a_key_that_is_none_is_one_sentence(chain, key):
    with pytest.raises(UserError, match="64 hexadecimal digits"):
        verify_file(chain, key, None)


def test_the_private_key_is_for_its_owner_alone_and_stays_the_same(tmp_path):
    one = Signer.from_folder(tmp_path)
    assert (tmp_path / "events.key").stat().st_mode & 0o077 == 0
    assert Signer.from_folder(tmp_path).public_hex == one.public_hex
