"""Wrong inputs, over all commands: a message with what, where and what to do next; exit code 2; nothing half-written.

A line is (what is typed, what the message names: what is wrong and where, what it says to do next). In the folder where
it is typed lie the files of `made`.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from live import state_folder
from opsassay.cli import COMMANDS, run
from opsassay.cli.tree import command_in
from telemetry.packs import make_tree

ROOT = Path(__file__).parents[2]
CALL = ("Usage:", "--help")
"""What click says of wrong use: how the command is called, and where its help is."""

WRONG = [
    ("gradee tree", "'gradee'", "did you mean 'score run'"),
    ("leadrboard tree", "'leadrboard'", "did you mean 'leaderboard'"),
    ("score gradee tree", "'score gradee'", "did you mean 'score run'"),
    ("score rn tree", "'score rn'", "did you mean 'score run'"),
    ("system record shop", "'system record'", "did you mean 'incident record'"),
    ("incident diagnose tree", "'incident diagnose'", "did you mean 'run diagnose'"),
    ("trace export otell tree", "'trace export otell'", "did you mean 'trace export otel'"),
    ("zzz", "'zzz'", "opsassay --help"),
    ("server zzz", "'server zzz'", "opsassay server --help"),
    ("--colour", "--colour", "--help"),
    # new, schema
    ("new agnt x", "'new agnt'", "did you mean 'new agent'"),
    ("new agent My_Agent", "'My_Agent'", "small letters"),
    ("new agent x -o text.txt", "text.txt", "is a file"),
    ("new schema agnt", "'agnt'", "agent"),
    ("new schema agent -o nowhere/x.json", "nowhere", "make it"),
    # systems
    ("system check shp", "'shp'", "did you mean 'shop'"),
    ("system check shop --seconds nan", "--seconds", "number"),
    ("system attach --compose shop --entry 8080 -o running.yaml", "'8080'", "http://127.0.0.1:8080/"),
    (
        "system attach --compose shop --entry http://a:1/ --traces zipkin=http://z:1",
        "zipkin=http://z:1",
        "tempo=URL or jaeger=URL",
    ),
    (
        "system attach --compose shop --entry http://a:1/ --metrics prometheus=p:90",
        "prometheus=p:90",
        "such as http://localhost:9090",
    ),
    ("system attach --compose shop --entry http://a:1/ --logs http://l:3100", "--logs http://l:3100", "write loki=URL"),
    ("system faults --system shp", "'shp'", "did you mean 'shop'"),
    ("system attach --entry http://a:1/", "--compose PROJECT", "--namespace NAME"),
    ("system attach --compose shop --namespace shop --entry http://a:1/", "Give either", "--namespace NAME"),
    ("system attach --compose shop --context c --entry http://a:1/", "--context", "leave it out"),
    ("system up shp", "'shp'", "did you mean 'shop'"),
    ("system up nowhere.yaml", "nowhere.yaml", "check the path"),
    ("system up shop --rate -3", "--rate", "--help"),
    ("system up shop --seed x", "'x'", "integer"),
    ("system up shop --substrate clouds", "clouds", "local"),
    ("system up bad.yaml", "bad.yaml:2", "not valid YAML"),
    ("system up system.yaml", "system.yaml:2", "did you mean 'services'"),
    ("system up list.yaml", "list.yaml:1", "expected a mapping"),
    ("system up shop --name 'a/b'", "a/b", "letters"),
    ("system down ghost", "'ghost'", "opsassay system up SYSTEM"),
    ("system logs ghost", "'ghost'", "opsassay system up SYSTEM"),
    ("system logs ghost --level loud", "loud", "info"),
    ("system status --substrate clouds", "clouds", "local"),
    ("system render shp", "'shp'", "did you mean 'shop'"),
    ("demo --fault PodKil", "PodKil", "did you mean 'PodKill'"),
    ("demo --normal 1", "--normal", "2"),
    ("demo --isolation none", "none", "plain"),
    ("system inject nowhere.yaml", "nowhere.yaml", "check the path"),
    ("system inject fault.yaml --on ghost", "ghost", "opsassay system up"),
    ("system inject wrong-fault.yaml --on ghost", "wrong-fault.yaml:1", "did you mean 'PodKill'"),
    ("system inject wrong-parameter.yaml --on ghost", "wrong-parameter.yaml", "did you mean 'cores'"),
    ("system inject two-keys.yaml --on ghost", "two-keys.yaml:2", "keep one"),
    ("system inject nothing.yaml --on ghost", "nothing.yaml:1: expected a mapping of settings", "found nothing"),
    ("system inject no-list.yaml --on ghost", "no-list.yaml:1: faults: expected a list", "found 'x'"),
    ("system inject fault.yaml --on ''", "'' is no name", "letters"),
    (f"system down {'x' * 300}", "too long a name", "Unix sockets"),
    ("system inject 'a\nb.yaml' --on ghost", "Cannot read a\\nb.yaml", "check the path"),
    ("incident record shp fault.yaml -o out", "'shp'", "did you mean 'shop'"),
    ("incident record shop nowhere.yaml -o out", "nowhere.yaml", "check the path"),
    ("incident record shop fault.yaml", "--output", "--help"),
    ("incident record shop no-such-service.yaml -o out", "no-such-service.yaml", "did you mean 'cart'"),
    ("incident campaign nowhere.yaml -o out", "nowhere.yaml", "check the path"),
    ("incident campaign campaign.yaml -o out", "campaign.yaml:2: systems.0.system", "did you mean 'shop'"),
    ("incident campaign fault.yaml -o out", "fault.yaml", "key"),
    ("incident campaign binary.yaml -o out", "binary.yaml", "UTF-8"),
    # data
    ("incident import rcabnch tree -o out", "'rcabnch'", "did you mean 'rcabench'"),
    ("incident import rcabench nowhere -o out", "nowhere", "folder"),
    ("incident import rcabench empty -o out", "empty", "datapack"),
    (
        "incident import otlp empty -o out --boundary noon",
        "'noon' is no time in ISO 8601",
        "as in 2026-03-01T10:30:00Z",
    ),
    ("incident import rcabench tree -o out --update-truth", "are for otlp", "not for rcabench"),
    ("incident import backends -o out", "No backend is named", "give at least one of --prometheus"),
    ("incident import backends nowhere.yaml -o out", "nowhere.yaml", "check the path"),
    ("incident annotate", "PATH", "--help"),
    ("incident annotate nowhere", "nowhere is not there", "expected a folder"),
    ("incident annotate empty", "empty", "incident"),
    ("incident annotate tree -j 0", "-j", "0"),
    ("incident annotate tree --settings nowhere.yaml", "nowhere.yaml", "check the path"),
    ("incident annotate tree --settings two-keys.yaml", "two-keys.yaml:2", "keep one"),
    ("incident curate tree -o out --per-stratum 0", "--per-stratum", "0"),
    ("incident curate tree", "--output", "--help"),
    ("incident curate empty -o out", "empty", "incident"),
    ("incident audit-labels tree", "tree", "-a"),
    ("incident audit-labels nowhere", "nowhere", "--help"),
    ("incident export empty -o out", "empty", "incident"),
    ("view empty --export out", "empty holds no runs", "opsassay run"),
    ("incident export tree -o text.txt", "text.txt", "is a file"),
    ("trace export rewards tree -o out.json", "tree holds no run", "opsassay run"),
    ("trace export otel tree", "-o", "--otlp"),
    ("trace export otel graded -o out.json --otlp shop", "shop is no URL", "give one such as"),
    ("trace export atif nowhere -o out.json", "nowhere", "recorded session"),
    ("incident serve-apis nowhere", "no running system 'nowhere'", "opsassay system up"),
    ("incident serve-apis nowhere/pack", "nowhere/pack is not a folder", "a datapack is"),
    ("incident fetch nowhere -o out", "nowhere", "a folder"),
    ("incident fetch empty -o out", "empty", ""),
    ("incident fetch 'http://[' -o out", "http://[", "give a folder"),
    ("incident export tree -o circle", "circle is a link that leads nowhere", "choose another folder"),
    ("incident annotate circle", "Too many levels of symbolic links", "name another place"),
    ("score run circle", "Too many levels of symbolic links", "name another place"),
    ("report graded -o ''", "an empty text names no folder", "give a path"),
    ("compare graded graded --junit /dev/null", "/dev/null is no ordinary file", "choose another file"),
    ("compare graded graded --junit text.txt/x", "text.txt is a file", "choose another file"),
    ("run diagnose tree -a : -o out", "The agent : cannot be imported", "give MODULE:CLASS"),
    ("run diagnose tree -m max-z -o '\udcff'", "\\udcff' is not UTF-8", "rename it"),
    ("incident serve-apis tree --port 99999", "--port", "65535"),
    # solvers
    ("run diagnose tree -m max-zz", "'max-zz'", "did you mean 'max-z'"),
    ("run diagnose nowhere", "nowhere is not there", "expected a folder"),
    ("run diagnose tree -m method.py:Nothing -o out", "Nothing", "method.py"),
    ("run diagnose tree -m nowhere.py:Own -o out", "nowhere.py", "give MODULE:CLASS"),
    ("run diagnose tree -m broken.py:Own -o out", "broken.py", "line 1"),
    ("run diagnose tree -m baro:windw=5 -o out", "windw", "did you mean 'window'"),
    ("run diagnose tree -m baro:window=many -o out", "window", "number"),
    ("run diagnose tree -m command:./nowhere -o out", "./nowhere", "command"),
    ("run diagnose tree -a nobody -o out", "nobody", "known"),
    ("run diagnose tree -c mask.drp=logs -o out", "mask.drp", "did you mean 'drop'"),
    ("agent check nobody", "nobody", "known"),
    ("agent check nowhere/agent.yaml", "nowhere/agent.yaml", "check the path"),
    ("agent check agent.yaml", "agent.yaml", "beside it"),
    ("agent check place.yaml", "{gost}", "known: python"),
    ("agent check max-z", "max-z", "opsassay run diagnose"),
    ("agent check rca --model scripted:nowhere.yaml", "nowhere.yaml", "check"),
    ("agent check rca -c limits.secnds=3", "limits.secnds", "did you mean 'seconds'"),
    ("run tree", "--agent", "--help"),
    ("run nowhere -a constant -o out", "nowhere is not there", "expected a folder"),
    ("run tree -a nobody -o out", "nobody", "known"),
    ("run tree -a oracle:rigt -o out", "rigt", "did you mean"),
    ("run tree -a rca --model scripted:nowhere.yaml -o out", "nowhere.yaml", "check"),
    ("run tree -a constant --repeats 0 -o out", "--repeats", "1"),
    ("run tree -a constant -c profile=strict -o out", "strict", "known"),
    ("run plan.yaml", "store", "-o"),
    ("run plan.yaml -o out -a constant", "-a", "plan.yaml"),
    ("run plan.yaml -o out", "plan.yaml: There is no scenario 'bad-relase'", "did you mean 'bad-release'"),
    ("run domain.yaml -o out", "'finnops'", "did you mean 'finops'"),
    ("run nowhere.yaml -o out", "nowhere.yaml", "check the path"),
    ("task list --domain finnops", "'finnops'", "did you mean 'finops'"),
    ("task list nowhere", "nowhere", "--help"),
    # grades
    ("score run tree", "tree", "opsassay run"),
    ("score run nowhere", "nowhere", "check"),
    ("score run graded --profile strict", "strict", "known"),
    ("score run graded --metric f1", "--metric", "--scores"),
    ("score table nowhere", "nowhere", "--help"),
    ("score table empty", "empty", "runs"),
    ("leaderboard empty", "empty", "runs"),
    ("leaderboard graded --domain finnops", "finnops", "did you mean 'finops'"),
    ("score import nowhere --cases tree -o out", "nowhere", "name a file"),
    ("score import empty --cases tree -o out", "empty", "name a folder of answers"),
    ("score import text.txt --cases tree -o out", "text.txt", "--form"),
    ("score import text.txt --form rcabnch --cases tree -o out", "'rcabnch'", "did you mean 'rcabench'"),
    ("score import text.txt --cases nowhere -o out", "nowhere", "expected a folder"),
    ("score import text.txt --cases tree -o text.txt/x", "text.txt is a file", "choose another folder"),
    ("score import text.txt --cases tree -o out --profile strict", "strict", "known"),
    ("score what-if graded -c undirectd=true", "undirectd", "did you mean 'undirected'"),
    ("report tree -o out", "tree", "runs"),
    ("report graded", "--output", "--help"),
    ("view nowhere", "nowhere", "opsassay run -o"),
    ("view text.txt", "text.txt", "opsassay run -o"),
    ("view graded --port 70000", "--port", "65535"),
    ("audit nowhere.csv -o out", "nowhere.csv", "give a CSV"),
    ("audit text.txt -o out", "text.txt", "two methods"),
    ("audit graded -o out --metric f11", "f11", "did you mean 'f1'"),
    ("audit verify nowhere.csv", "nowhere.csv", "give a CSV"),
    ("compare graded nowhere", "nowhere", "a store of graded runs"),
    ("compare graded graded --metric f11", "f11", "did you mean 'f1'"),
    ("compare graded graded --junit empty", "empty", "is a directory"),
    ("score run graded --tables nowhere/x.md", "nowhere", "make it"),
    ("leaderboard graded --html nowhere/x.html", "nowhere", "make it"),
    ("compare graded graded --margin -1", "--margin", "0"),
    ("incident curate tree -o text.txt", "text.txt", "is a file"),
    ("run diagnose tree -m max-z -o text.txt", "text.txt", "is a file"),
    ("run tree -a constant -o text.txt", "text.txt", "is a file"),
    ("report graded -o text.txt", "text.txt", "is a file"),
    ("incident import rcabench tree -o text.txt", "text.txt", "is a file"),
    ("audit graded -o text.txt", "text.txt", "is a file"),
    ("incident campaign campaign.yaml -o text.txt", "text.txt", "is a file"),
    ("incident record shop fault.yaml -o text.txt", "text.txt", "choose another folder"),
    ("task calibrate bad-release -o text.txt", "text.txt", "is a file"),
    ("task discover bad-release -o text.txt", "text.txt", "is a file"),
    ("view graded --export text.txt/pages", "text.txt is a file", "choose another folder"),
    ("view graded --export /dev/null", "/dev/null is a file", "choose another folder"),
    ("view graded --cases text.txt", "text.txt", "opsassay run -o"),
    ("report graded -o graded/incidents", "the incidents of the store", "choose another folder"),
    ("run tree -a constant -o graded/runs/x", "the runs of the store", "choose another folder"),
    ("run diagnose tree -m max-z -o graded/truth", "the truth of the store", "choose another folder"),
    ("run text.txt -a constant -o out", "text.txt is neither a folder of incidents nor a plan", ".yaml"),
    ("run text.txt -o out", "text.txt is neither", "check the path"),
    ("task list text.txt --domain diagnosis", "text.txt holds no task of diagnosis", "give a suite"),
    ("incident import rcabench tree -o text.txt/x", "text.txt is a file", "choose another folder"),
    ("score run graded/runs", "graded/runs holds no runs", "opsassay run"),
    ("audit text.txt -o graded/runs", "the runs of the store", "choose another folder"),
    ("system down ''", "'' is no name", "letters"),
    ("system up binary.yaml", "binary.yaml", "UTF-8"),
    ("system inject binary.yaml --on ghost", "binary.yaml", "UTF-8"),
    ("run trials binary.yaml -o out", "binary.yaml", "UTF-8"),
    ("incident campaign empty -o out", "empty", "directory"),
    ("trace convert binary.yaml", "binary.yaml is not UTF-8", "no trace"),
    ("trace blame binary.yaml", "binary.yaml is not UTF-8", "no trace"),
    ("trace blame empty", "empty is not a recorded session", "opsassay trace proxy"),
    ("audit binary.yaml -o out", "binary.yaml is not UTF-8", "save it"),
    ("incident fetch graded -o out", "graded holds no SHA256SUMS", "give a suite"),
    ("score what-if graded -c undirected=maybe", "undirected", "true or false"),
    ("server verify binary.yaml --key binary.yaml", "binary.yaml holds no events", "give a platform's"),
    ("incident serve-apis graded --port x", "'x'", "integer"),
    ("incident curate graded -o graded", "graded exists already", "choose another folder"),
    # trials
    ("run trials nowhere.yaml -o out", "nowhere.yaml", "check the path"),
    ("run trials plan.yaml -o out", "plan.yaml: There is no scenario 'bad-relase'", "did you mean 'bad-release'"),
    ("run trials fault.yaml -o out", "fault.yaml:1", "key"),
    ("run trials noisy.yaml -o out", "noise: replicas-scaled-to-zero happens on kubernetes", "out of the plan"),
    ("score timeline unreachable-service", "Name the record", "--records"),
    ("score timeline unreachable-service --records plan.yaml", "plan.yaml:1", "not a line of JSON"),
    ("score timeline unreachable-service --watch plan.yaml", "plan.yaml:1", "no JSON"),
    ("score timeline unreachable-service --prometheus plan.yaml", "plan.yaml:1", "no JSON"),
    ("score timeline unreachable-service --records plan.yaml --fault noon", "'noon'", "seconds since 1970"),
    ("score trials empty", "empty", "opsassay run trials"),
    ("new method x -o text.txt", "text.txt", "is a file"),
    ("task show bad-relase", "'bad-relase'", "did you mean 'bad-release'"),
    ("incident export harbor -o out", "TREE", "--scenario NAME"),
    ("incident export dataset nowhere -o out", "nowhere", "folder"),
    ("trace export inspect nowhere -o out", "nowhere", "graded run"),
    ("task generate --cost nowhere.csv -o out", "nowhere.csv", "does not exist"),
    ("task generate -o out", "--cost", "--namespace"),
    ("task generate --namespace shop --kubeconfig nowhere.yaml -o out", "nowhere.yaml", "does not exist"),
    ("task generate --namespace shop --kubeconfig domain.yaml -o out", "domain.yaml cannot be used", "KUBECONFIG"),
    ("task generate --cost domain.yaml -o out", "domain.yaml has no column BilledCost", "FOCUS 1.0 to 1.3"),
    ("task check nowhere.yaml", "nowhere.yaml", "check the path"),
    ("task check fault.yaml", "fault.yaml:1", "key"),
    ("run explain nowhere", "nowhere", "folder of an attempt"),
    ("run explain .", "run.json", "folder of an attempt"),
    ("task calibrate bad-relase -o out", "'bad-relase'", "did you mean 'bad-release'"),
    ("task calibrate bad-config-map -o out", "bad-config-map does not happen on this machine", "leave it out"),
    ("task discover bad-relase -o out", "'bad-relase'", "did you mean 'bad-release'"),
    ("task discover bad-release -o out --target ghost", "ghost", "known"),
    ("task discover bad-release -o out --over repairs --target catalog", "--target", "leave it out"),
    (
        "task discover busy-hour -o out --over repairs",
        "its oracle gentle comes to alerts_cleared",
        "take another scenario",
    ),
    # model traffic
    ("trace proxy --upstream ftp://x -o out", "'ftp://x'", "give a URL"),
    ("trace proxy --upstream http://127.0.0.1:1", "--output", "--help"),
    ("trace proxy --upstream scripted:nowhere.yaml -o out", "nowhere.yaml", "check"),
    ("trace proxy --upstream http://127.0.0.1:1 -o out --intervene fault.yaml", "--intervene", "--replay"),
    ("trace proxy --upstream http://127.0.0.1:1 -o out --replay nowhere", "nowhere", "record one with"),
    ("trace proxy --upstream scripted:script.yaml -o out -- ./nowhere", "./nowhere", "give the path"),
    ("trace redact trace.json -o empty", "empty", "is a directory"),
    ("trace blame annotate trace.json --annotator '' -o x.html", "--annotator", "give your name"),
    ("trace convert nowhere", "nowhere", "recorded session"),
    ("trace convert text.txt", "text.txt:1", "give the file of a trace"),
    ("trace convert other.json", "other.json", "known are traces"),
    ("trace redact text.txt -o out.json", "text.txt:1", "give the file"),
    ("trace proxy token 'a/b' -o out", "a/b", "letters"),
    ("trace blame nowhere", "nowhere", "recorded session"),
    ("trace blame text.txt", "text.txt:1", "give the file"),
    ("trace blame trace.json --technique guess", "guess", "known"),
    ("trace blame trace.json --technique dynamic", "'dynamic'", "--model"),
    ("trace blame trace.json --technique dynamic --model scripted:script.yaml", "dynamic", "--rerun"),
    ("trace blame view text.txt -o out.html", "text.txt:1", "give the file"),
    ("trace blame annotate trace.json --annotator x -o empty", "empty", "is a directory"),
    ("trace blame agree nowhere.json", "nowhere.json", "annotation page"),
    # the platform
    ("server start --port 99999", "--port", "65535"),
    ("server start --bind not..there", "--bind", "127.0.0.1"),
    ("server start --database nonsense", "nonsense", "postgresql://"),
    ("server worker --database nonsense --state nowhere", "nonsense", "postgresql://"),
    ("server worker", "--database", "--help"),
    ("server register mine --domain finops", "OPSASSAY_TOKEN holds no token", "set it"),
    ("server register mine --domain finops --server nowhere", "--server nowhere", "give one such as"),
    ("server register mine --domain finops --bundle tree", "tree holds no agent.yaml", "opsassay new agent"),
    (
        "server register mine --domain finops --bundle tree --built-in chance",
        "--bundle and --built-in",
        "leave one out",
    ),
    ("server benchmark mine bill", "OPSASSAY_TOKEN holds no token", "set it"),
    ("server token renew --state empty", "empty holds no platform", "opsassay server start"),
    ("server verify nowhere.jsonl --key nowhere", "nowhere", "--help"),
    ("server verify text.txt --key text.txt", "text.txt", "give a platform's"),
]


STEP = {"step_id": 1, "agent_id": "0", "agent_name": "A", "input_context": "", "output_content": "x"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder of wrong files, and of right ones for what is wrong beside them."""
    folder = tmp_path_factory.mktemp("wrong")
    make_tree(folder / "tree", count=1)
    shutil.copytree(ROOT / "tests" / "evals" / "golden" / "diagnosis_store", folder / "graded")
    (folder / "empty").mkdir()
    for name, text in {
        "text.txt": "this is text\n",
        "script.yaml": "rules: [{reply: x}]\n",
        "bad.yaml": "system: [shop\n",
        "list.yaml": "- one\n",
        "nothing.yaml": "",
        "no-list.yaml": "faults: x\n",
        "binary.yaml": None,
        "system.yaml": "system: mine\nservice: {}\n",
        "fault.yaml": "fault: PodKill\ntarget: {service: cart}\n",
        "wrong-fault.yaml": "fault: PodKil\ntarget: {service: cart}\n",
        "wrong-parameter.yaml": "fault: CPUStress\ntarget: {service: cart}\nparameters: {cors: 2}\n",
        "two-keys.yaml": "fault: PodKill\nfault: PodKill\n",
        "no-such-service.yaml": "fault: PodKill\ntarget: {service: crt}\n",
        "campaign.yaml": "campaign: c\nsystems: [{system: shp, faults: [{fault: PodKill, targets: [cart]}]}]\n",
        "agent.yaml": "agent: mine\ncommand: ['{python}', main.py]\nfiles: [main.py]\n",
        "place.yaml": "agent: mine\ncommand: ['{gost}']\n",
        "plan.yaml": "scenarios: [bad-relase]\nagents: ['oracle:*']\n",
        "noisy.yaml": "scenarios: [replicas-scaled-to-zero]\nagents: ['oracle:*']\nnoise: [true]\n",
        "domain.yaml": "domain: finnops\nagents: [chance]\n",
        "method.py": "class Own:\n    pass\n",
        "broken.py": "class Own(\n",
        "other.json": "{}",
        "trace.json": json.dumps(
            {"schema_version": 1, "task_id": "t", "task_instruction": "", "system_name": "s", "steps": [STEP]}
        ),
    }.items():
        (folder / name).write_bytes(b"\xff\xfe\x00" if text is None else text.encode())
    (folder / "circle").symlink_to("circle")
    return folder


def entries(folder):
    return sorted((str(path), path.lstat().st_size) for path in folder.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.sampled
@pytest.mark.parametrize(("typed", "names", "then"), WRONG, ids=[typed for typed, _, _ in WRONG])
def test_it_is_said_what_is_wrong_where_and_what_to_do_next(typed, names, then, made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    before = entries(made)
    with state_folder():
        code = run(shlex.split(typed))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    said = " ".join(err.split())
    assert names in said
    assert then in said
    sentences = [line for line in err.splitlines() if line.strip() and not re.match(r"Usage:|Try |opsassay: |\s", line)]
    assert len(sentences) == 1
    assert not re.search(r"[^.]\.\.(\s|$)|[?;]\.", said), "punctuation stands twice"
    assert entries(made) == before


TAKEN = [
    "trace proxy --upstream http://127.0.0.1:1 -o new --port {port}",
    "trace proxy --upstream http://127.0.0.1:1 -o new --port {port} -- true",
    "view graded --port {port}",
    "incident serve-apis tree --port {port}",
]


@pytest.mark.parametrize("typed", TAKEN)
def test_a_port_that_is_taken_leaves_nothing_behind(typed, made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    before = entries(made)
    with state_folder(), socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(shlex.split(typed.format(port=port))) == 2
    _, err = capsys.readouterr()
    assert f"Port {port}" in err
    assert "Address already in use" in err
    assert entries(made) == before


DISKS = """
import shlex, sys
from opsassay.cli import run
print([run(shlex.split(typed)) for typed in sys.stdin.read().splitlines()])
"""
READ_ONLY = [
    "new agent x -o {place}/x",
    "new schema agent -o {place}/x.json",
    "view graded --export {place}/x",
    "report graded -o {place}/x",
    "run graded -a constant -o {place}/x",
    "trace proxy --upstream scripted:script.yaml -o {place}/x -- true",
    "trace redact trace.json -o {place}/x.json",
]
FULL = ["new schema agent -o {full}/x.json", "run graded -a constant -o {full}/x", "incident export tree -o {full}/x"]


@pytest.mark.slow
def test_a_place_that_cannot_be_written_to_is_wrong_input_and_a_full_disk_is_not(made, tmp_path):
    place, full = tmp_path / "place", tmp_path / "full"
    place.mkdir()
    full.mkdir()
    mounts = (
        f"mount --bind {place} {place} && mount -o remount,ro,bind {place} {place}"
        f" && mount -t tmpfs -o size=4096 none {full} && ! dd if=/dev/zero of={full}/all bs=4096 count=2 2> /dev/null"
    )
    if subprocess.run(["unshare", "-rm", "sh", "-c", mounts], check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here: neither user namespaces nor root")
    before = entries(made)
    typed = [line.format(place=place, full=full) for line in (*READ_ONLY, *FULL)]
    words = ["unshare", "-rm", "sh", "-c", f'{mounts}; exec "$@"', "sh", sys.executable, "-c", DISKS]
    with state_folder():
        done = subprocess.run(words, cwd=made, input="\n".join(typed), text=True, capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == str([2] * len(READ_ONLY) + [1] * len(FULL))
    assert done.stderr.count("Read-only file system") == len(READ_ONLY)
    full_disks = [line for line in done.stderr.splitlines() if "No space left on device" in line]
    assert len(full_disks) == len(FULL)
    assert [line for line in full_disks if str(full) not in line] == [], "the sentence names the full disk"
    assert "Traceback" not in done.stderr
    assert list(place.iterdir()) == []
    assert entries(made) == before


def test_there_are_a_hundred_and_every_command_is_among_them():
    assert len({typed for typed, _, _ in WRONG}) >= 100
    without = {"agent list", "agent methods", "task scenarios"}  # they take no input
    same = {"new scenario", "new plan", "system render worker"}  # the function of another command, or its options alone
    assert {command_in(typed.split()) for typed, _, _ in WRONG} - {""} == set(COMMANDS) - without - same
