"""Task sets that authors hand in over HTTP: checked, bound by a commitment, shown when they are closed."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import urllib.request
from pathlib import Path

import pytest
import yaml

from opsassay.server.access import MOST_UPLOADS
from opsassay.server.client import PlatformError
from opsassay.server.task_sets import TaskSet
from telemetry.packs import make_tree

from .conftest import bundle, finished

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
SECRET = "sixteen bytes and more of a secret"
HELD_OUT = {
    "domain": "finops",
    "baselines": [],
    "part": {"tasks": ["category-cost"], "held_out": {"secret": "s.txt", "count": 2}},
}


@pytest.fixture(scope="module")
def author(platform):
    return platform.user("author", "author")


def tar_of(tasks, **files):
    return bundle(task_set__yaml=yaml.safe_dump(tasks), **files)


def hand_in(author, name, content):
    return author.ask("POST", f"/api/task-sets?name={name}", content)


def get(client, path):
    request = urllib.request.Request(client.server + path, headers={"Authorization": f"Bearer {client._token}"})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def test_what_is_handed_in_is_graded_and_shown_when_it_is_closed_as_it_was_committed(platform, author):
    content = tar_of(HELD_OUT, s__txt=SECRET)
    said = hand_in(author, "secret-bill", content)
    assert (said["version"], said["tasks"]) == (1, 3)
    owner = platform.user("is graded")
    head = owner.ask("GET", "/api/task-sets/secret-bill")
    assert (head["version"], head["commitment"], head["salt"]) == (1, said["commitment"], None)
    assert {"name", "unit", "direction"} <= head["metrics"][0].keys()
    about = {"name": "graded on it", "kind": "built_in", "domains": ["finops"], "source": "chance"}
    found = finished(owner, owner.request(owner.ask("POST", "/api/agents", about)["id"], "secret-bill"))
    assert [cell["bundle"] for cell in found["cells"]] == ["Terminated"] * 3
    with pytest.raises(PlatformError, match="not handed in by you"):
        owner.ask("GET", "/api/task-sets/secret-bill/upload")
    assert get(author, "/api/task-sets/secret-bill/upload") == content
    for path in (
        "/api/task-sets",
        "/api/task-sets/secret-bill",
        "/api/events?limit=10000",
        "/leaderboards/secret-bill",
    ):
        shown = get(owner, path)
        assert SECRET.encode() not in shown, path
        assert hashlib.sha256(content).hexdigest().encode() not in shown, path
    with pytest.raises(PlatformError, match="role author"):
        owner.ask("POST", "/api/task-sets/secret-bill/close")
    closed = author.ask("POST", "/api/task-sets/secret-bill/close")
    opened, head = get(owner, "/api/task-sets/secret-bill/upload"), owner.ask("GET", "/api/task-sets/secret-bill")
    assert (head["closed"], head["salt"]) == (True, closed["salt"])
    assert hashlib.sha256(bytes.fromhex(head["salt"]) + opened).hexdigest() == said["commitment"]
    assert opened == content
    with pytest.raises(PlatformError, match="is closed"):
        owner.request(owner.ask("GET", "/api/agents")["items"][0]["id"], "secret-bill")
    chain = [one for one in author.ask("GET", "/api/events?limit=10000")["items"] if one["subject"] == "secret-bill"]
    assert [one["kind"] for one in chain] == ["task set handed in", "task set closed"]
    assert {json.loads(one["body"])["commitment"] for one in chain} == {said["commitment"]}


def test_the_next_version_is_another_and_a_name_is_its_author_s(platform, author):
    tasks = {"domain": "finops", "baselines": [], "part": {"tasks": ["category-cost"]}}
    first, second = hand_in(author, "versions", tar_of(tasks)), hand_in(author, "versions", tar_of(tasks))
    assert (first["version"], second["version"]) == (1, 2)
    assert first["commitment"] != second["commitment"], "the same content is not seen by its commitment"
    other = platform.user("other author", "author")
    for name in ("versions", "bill"):
        with pytest.raises(PlatformError, match="another name is free"):
            hand_in(other, name, tar_of(tasks))
        with pytest.raises(PlatformError, match="another name is free"):
            other.ask("POST", f"/api/task-sets/{name}/close")
    with pytest.raises(PlatformError, match="role author"):
        hand_in(platform.user("an owner"), "mine", tar_of(tasks))


def test_classes_levels_and_a_seed_choose_tasks(platform, author):
    tasks = {"domain": "finops", "part": {"tasks": ["insight", "anomaly"]}}

    def chosen(**choose):
        return hand_in(author, "chosen", tar_of({**tasks, "choose": choose}))["tasks"]

    everything = hand_in(author, "chosen", tar_of(tasks))["tasks"]
    assert chosen(levels=["easy"]) + chosen(levels=["medium"]) + chosen(levels=["hard"]) == everything
    assert 0 < chosen(classes=["anomaly"]) < everything
    assert chosen(count=5, seed=1) == 5
    with pytest.raises(PlatformError, match="choose asks for 100"):
        chosen(count=100)
    owner, drawn = platform.user("lottery"), []
    for number, seed in enumerate((1, 1, 2)):
        hand_in(author, "chosen", tar_of({**tasks, "baselines": [], "choose": {"count": 5, "seed": seed}}))
        about = {"name": f"drawn {number}", "kind": "built_in", "domains": ["finops"], "source": "chance"}
        benchmark = owner.request(owner.ask("POST", "/api/agents", about)["id"], "chosen")
        drawn.append(sorted(cell["task"] for cell in owner.benchmark(benchmark)["cells"]))
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 5


def wrong(tmp_path):
    scenario = yaml.safe_load((ROOT / "examples" / "extending" / "scenario.yaml").read_text())
    scenario["verification"]["committed_depth"] = "D1"
    sre = {"domain": "sre", "baselines": [], "part": {"scenarios": ["one.yaml"]}}
    tree = make_tree(tmp_path / "suite", count=1).root
    files = {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file() and "truth" not in path.relative_to(tree).parts
    }
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w") as archive:
        for name, content in {
            "task_set.yaml": yaml.safe_dump({"domain": "diagnosis", "part": {"incidents": ["suite"]}}).encode(),
            **{f"suite/{name}": content for name, content in files.items()},
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    bill = {"domain": "finops", "part": {"tasks": ["category-cost"]}}
    return {
        "no tar archive": b"something else",
        "no task_set.yaml": bundle(other__yaml="x"),
        "domain": tar_of({**bill, "domain": "clouds"}),
        "no-such-task": tar_of({**bill, "part": {"tasks": ["no-such-task"]}}),
        "the platform's to say": tar_of({**bill, "closed": True}),
        "outside of the upload": tar_of({"domain": "diagnosis", "part": {"incidents": ["../bill"]}}),
        "'/etc/passwd' lies": tar_of({"domain": "diagnosis", "part": {"incidents": ["/etc/passwd"]}}),
        "cannot show what happens there": tar_of(sre, one__yaml=yaml.safe_dump(scenario)),
        "has no truth": kept.getvalue(),
    }


def test_what_cannot_be_run_is_refused_in_one_sentence_and_leaves_nothing(platform, author, tmp_path):
    folder = platform.state / "task_sets"
    before = sorted(folder.iterdir())
    for said, content in wrong(tmp_path).items():
        with pytest.raises(PlatformError, match=re.escape(said)) as caught:
            hand_in(author, "wrong", content)
        assert caught.value.status in (400, 404), said
        assert len(str(caught.value).splitlines()) == 1, caught.value
        assert str(platform.state) not in str(caught.value)
        assert sorted(folder.iterdir()) == before, said
    with pytest.raises(PlatformError, match="small letters"):
        hand_in(author, "Not%20a/name", tar_of(HELD_OUT))


def test_a_set_that_uses_no_new_key_has_the_digest_that_it_had_before_there_were_any():
    old = {
        "domain": "finops",
        "description": "",
        "baselines": None,
        "attempts": 20,
        "closed": False,
        "part": {"tasks": ["x"]},
    }
    payload = json.dumps(old, sort_keys=True, separators=(",", ":"))
    tasks = TaskSet.model_validate(old)
    assert tasks.digest() == hashlib.sha256(payload.encode()).hexdigest()
    assert tasks.model_copy(update={"closed": True}).digest() == tasks.digest()


def test_an_owner_has_so_many_attempts_and_uploads_and_no_more(platform, author):
    hand_in(author, "one-try", tar_of({**HELD_OUT, "attempts": 1}, s__txt=SECRET))
    owner = platform.user("hands in a lot")
    about = {"name": "tries 0", "kind": "built_in", "domains": ["finops"], "source": "chance"}
    agent = owner.ask("POST", "/api/agents", about)["id"]
    finished(owner, owner.request(agent, "one-try"))
    with pytest.raises(PlatformError, match="asked for 1 benchmarks on one-try, which are all that an owner has"):
        owner.request(agent, "one-try")
    for number in range(1, MOST_UPLOADS + 1):
        owner.ask("POST", "/api/agents", {**about, "name": f"tries {number}", "kind": "self_hosted", "source": ""})
    with pytest.raises(PlatformError, match=f"handed in {MOST_UPLOADS} agents, which are all that an owner may"):
        owner.ask("POST", "/api/agents", {**about, "name": "one more", "kind": "self_hosted", "source": ""})
    owner.ask("POST", "/api/agents", {**about, "name": "by name"})  # nothing of it is kept
    written = platform.state / "task_sets" / "one-try.yaml"
    tasks = yaml.safe_load(written.read_text())
    tasks["handed_in"]["version"] = MOST_UPLOADS
    written.write_text(yaml.safe_dump(tasks))
    with pytest.raises(PlatformError, match=r"handed in \d+ versions of task sets, which are all that an owner may"):
        hand_in(author, "one-more", tar_of(HELD_OUT, s__txt=SECRET))
    assert not (platform.state / "task_sets" / "one-more.1").exists()
