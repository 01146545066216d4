"""Agents of every temper through the whole run: what ends up in the run folder."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from evals.commands import GOOD, agent
from opsassay.core.errors import NotFoundError, RefusedError, UserError
from opsassay.core.schema.run import RunStatus
from opsassay.evals.diagnosis.setups.agents import setup_of
from opsassay.evals.diagnosis.solve import run_agent
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner import commands
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
from opsassay.solvers.agents.models import Reply
from opsassay.solvers.agents.models.server import running_server
from opsassay.solvers.proxy.formats.finding import read_one
from opsassay.solvers.proxy.running import running_proxy
from opsassay.solvers.proxy.server import ProxySettings
from opsassay.solvers.proxy.tokens import issue_token
from opsassay.solvers.sandbox import sealing_refusal
from opsassay.telemetry.mask import Mask
from solvers.agents.exams import calls, is_synthesis, says
from telemetry.packs import make_pack


@pytest.fixture(scope="module")
def item(tmp_path_factory):
    return IncidentItem.from_datapack(make_pack(tmp_path_factory.mktemp("pack") / "p", error_in="cart"))


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store")


@pytest.fixture
def external_run(store, item, tmp_path):
    """Return a function that runs the agent whose program it is given, unsealed unless told otherwise."""

    def run(code, *, sealing="off", model=None, limits=None, **further):
        setup = setup_of(str(agent(tmp_path / "agent", code, **further)), sealing=sealing, model=model, limits=limits)
        run_dir = run_agent(store, item, setup)
        return run_dir, read_run(run_dir), read_diagnosis(run_dir)

    return run


# External agents: whatever they do is a recorded outcome ----------------------------------------------------------------


def test_an_answer_in_the_file_is_the_answer(external_run):
    run_dir, run, diagnosis = external_run("answer.write_text(json.dumps(GOOD)); print('all done')")
    assert (run.status, run.error, run.isolation, run.flags) == (RunStatus.DONE, None, "unsealed", ())
    assert diagnosis.root_causes[0].service == "cart"
    assert run.solver.kind == "agent"
    assert "all done" in (run_dir / "solver.log").read_text()
    assert len(read_one(run_dir / "trace.jsonl").steps) == 1


def test_an_unsealed_result_gives_way_to_a_sealed_one_and_not_the_other_way_round(external_run):
    if sealing_refusal():
        pytest.skip(f"this machine cannot seal: {sealing_refusal()}")
    code = "answer.write_text(json.dumps(GOOD))"
    loose, *_ = external_run(code)
    assert external_run(code)[0] == loose
    sealed, run, _ = external_run(code, sealing="required")
    assert (sealed != loose, run.isolation) == (True, "sealed")
    assert external_run(code, sealing="auto")[0] == external_run(code, sealing="off")[0] == sealed


def test_what_is_printed_is_the_answer_when_there_is_no_file(external_run):
    _, run, diagnosis = external_run("print('I think:'); print(json.dumps(GOOD))")
    assert run.status is RunStatus.DONE
    assert diagnosis.root_causes[0].service == "cart"
    assert any("prose" in note for note in diagnosis.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("pass", "failed", "no answer by the contract: the answer is empty"),
        ("print('It was the cart.')", "failed", "the answer is no JSON"),
        ("answer.write_text('{\"root_causes\": [')", "failed", "the answer is no JSON"),
        ("answer.write_bytes(bytes(range(256)))", "failed", "the answer is no JSON"),
        ("answer.write_text('{}')", "failed", "root_causes is missing"),
        ("print(json.dumps(GOOD).replace('http_aborted', 'gremlins'))", "failed", "'gremlins' is no fault kind"),
        (
            (
                "e = GOOD['root_causes'][0]['evidence']\n"
                "GOOD['propagation'] = [{'from': f's{i}', 'to': 'x', 'evidence': e} for i in range(10_000)]\n"
                "print(json.dumps(GOOD))"
            ),
            "failed",
            "propagation has 10000 entries; at most 500",
        ),
        ("answer.write_bytes(b' ' * (17 * 2**20))", "failed", "larger than"),
        ("answer.symlink_to('/etc/hostname')", "failed", "the answer is empty"),
        ("answer.mkdir()", "failed", "the answer is empty"),
        ("os.mkfifo(answer)", "failed", "the answer is empty"),
        ("raise RuntimeError('my agent broke')", "failed", "exit code 1 and no answer: RuntimeError: my agent broke"),
        ("answer.write_text(json.dumps(GOOD)); sys.exit(3)", "failed", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "failed", "killed by SIGKILL"),
    ],
)
def test_a_bad_end_is_recorded_with_its_reason(external_run, code, status, reason):
    _, run, diagnosis = external_run(code)
    assert (run.status.value, diagnosis) == (status, None)
    assert reason in (run.error or "")


def test_a_hang_is_killed_with_all_that_it_started(external_run):
    run_dir, run, _ = external_run(
        "import subprocess; child = subprocess.Popen(['sleep', '600']); print(child.pid, flush=True); time.sleep(600)",
        limits={"seconds": 2},
    )
    assert (run.status, run.error, run.limits_hit) == (RunStatus.TIMEOUT, "no answer after 2 s", ("seconds",))
    child = int((run_dir / "solver.log").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
@pytest.mark.parametrize("sealing", ["off", "required"])
@pytest.mark.parametrize(
    ("code", "status", "note"),
    [
        ("answer.write_text(json.dumps(GOOD))", "done", None),
        ("answer.write_text(json.dumps(GOOD)[:-9])", "timeout", "answer.json: the answer is no JSON"),
        ("answer.write_text('')", "timeout", "answer.json: the answer is empty"),
        ("print(json.dumps(GOOD), flush=True)", "timeout", None),
    ],
)
def test_who_is_killed_at_the_end_of_its_time_has_answered_if_the_file_is_whole(
    external_run, sealing, code, status, note
):
    if sealing == "required" and sealing_refusal():
        pytest.skip(f"this machine cannot seal: {sealing_refusal()}")
    _, run, diagnosis = external_run(code + "; time.sleep(600)", sealing=sealing, limits={"seconds": 5})
    assert (run.status.value, run.limits_hit) == (status, ("seconds",))
    assert (diagnosis is not None) == (status == "done")
    assert run.error == (None if diagnosis else "no answer after 5 s")
    assert len(run.notes) == (note is not None)
    assert all(given.startswith(note) for given in run.notes)


@pytest.mark.slow
@pytest.mark.parametrize("sealing", ["off", "required"])
def test_output_without_end_is_read_and_dropped(external_run, sealing):
    if sealing == "required" and sealing_refusal():
        pytest.skip(f"this machine cannot seal: {sealing_refusal()}")
    code = "for _ in range(600): sys.stdout.write('x' * 99_999 + '\\n')\nanswer.write_text(json.dumps(GOOD))"
    run_dir, run, _ = external_run(code, sealing=sealing)
    assert run.status is RunStatus.DONE, run.error
    assert (run_dir / "solver.log").stat().st_size < 2**18
    assert sum(path.stat().st_size for path in run_dir.iterdir() if path.is_file()) < 2**20


def test_a_command_that_is_not_there_is_a_reason(external_run):
    _, run, _ = external_run("pass", command=["/no/such/agent"])
    assert run.status is RunStatus.FAILED
    assert "cannot be started" in (run.error or "")


def test_unknown_services_and_circles_are_noted_and_kept(external_run):
    _, run, diagnosis = external_run(
        "e = GOOD['root_causes'][0]['evidence']\n"
        "GOOD['root_causes'][0]['service'] = 'cardt'\n"
        "GOOD['propagation'] = [{'from': a, 'to': b, 'evidence': e} for a, b in (('cart', 'store'), ('store', 'cart'))]\n"
        "print(json.dumps(GOOD))"
    )
    assert run.status is RunStatus.DONE
    assert diagnosis.notes[0] == "there is no service 'cardt' in the data; did you mean 'cart'?"
    assert "in a circle" in diagnosis.notes[1]


# The canary, the seal ---------------------------------------------------------------------------------------------------

STEAL = """
for found in sorted(view.parent.rglob('truth.json')) + sorted(Path('/').glob('*/truth.json')):
    told = json.loads(found.read_text())
    GOOD['root_causes'][0]['service'] = told['faults'][0]['service']
    break
print(json.dumps(GOOD))
"""


def test_an_answer_that_repeats_the_canary_truth_is_flagged(external_run):
    _, run, diagnosis = external_run(STEAL)
    assert run.flags == ("canary",)
    assert diagnosis.root_causes[0].service != "cart"


def test_an_edge_that_names_the_canary_is_flagged_too(external_run):
    _, run, _ = external_run(
        "root = json.loads((view.parent / 'injection.json').read_text())['service']\n"
        "e = GOOD['root_causes'][0]['evidence']\n"
        "GOOD['propagation'] = [{'from': root, 'to': 'cart', 'evidence': e}]\nprint(json.dumps(GOOD))"
    )
    assert run.flags == ("canary",)


@pytest.mark.slow
@pytest.mark.skipif(sealing_refusal() is not None, reason=f"this machine cannot seal: {sealing_refusal()}")
def test_sealed_it_finds_no_canary_and_its_answer_counts(external_run):
    _, run, diagnosis = external_run(STEAL, sealing="auto", limits={"seconds": 240})  # it looks everywhere
    assert (run.isolation, run.flags, run.error) == ("sealed", (), None)
    assert diagnosis.root_causes[0].service == "cart"


@pytest.mark.skipif(sealing_refusal() is not None, reason=f"this machine cannot seal: {sealing_refusal()}")
def test_sealed_it_sees_its_incident_its_files_and_its_home(external_run):
    run_dir, run, _ = external_run(
        "seen = {'view': sorted(p.name for p in view.iterdir()), 'home': os.environ['HOME'], 'cwd': os.getcwd(),\n"
        "        'work': sorted(p.name for p in Path('/work').iterdir()),\n"
        "        'agent': sorted(p.name for p in Path('/opt/opsassay-agent').iterdir()),\n"
        "        'environment': sorted(os.environ)}\n"
        "print(json.dumps(seen), file=sys.stderr)\nprint(json.dumps(GOOD))",
        sealing="required",
    )
    assert run.isolation == "sealed"
    seen = json.loads((run_dir / "solver.log").read_text().splitlines()[-1])
    assert "abnormal_traces.parquet" in seen["view"]
    assert not {"truth.json", "injection.json", "causal_graph.json"} & set(seen["view"])
    assert (seen["home"], seen["agent"]) == ("/work", ["main.py"])
    assert "prompt.md" in seen["work"]
    assert not [name for name in seen["environment"] if "KEY" in name or "OPSASSAY" in name]


@pytest.mark.slow
@pytest.mark.skipif(sealing_refusal() is not None, reason=f"this machine cannot seal: {sealing_refusal()}")
def test_sealed_a_hang_is_a_timeout(external_run):
    _, run, _ = external_run("time.sleep(600)", sealing="auto", limits={"seconds": 3})
    assert (run.status, run.limits_hit, run.isolation) == (RunStatus.TIMEOUT, ("seconds",), "sealed")


def test_where_the_machine_cannot_seal_a_run_is_unsealed_or_refused(store, item, tmp_path, monkeypatch):
    monkeypatch.setattr("opsassay.evals.runner.commands.sealing_refusal", lambda: "no user namespaces here.")
    path = str(agent(tmp_path / "agent", "print(json.dumps(GOOD))"))
    with pytest.raises(RefusedError, match="no user namespaces here"):
        setup_of(path, sealing="required")
    assert read_run(run_agent(store, item, setup_of(path))).isolation == "unsealed"


# Tools by MCP, and a model behind the proxy -----------------------------------------------------------------------------

SUBMIT = """
import subprocess
told = json.loads(mcp.read_text())["mcpServers"]["opsassay"]
server = subprocess.Popen([told["command"], *told["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(number, method, params):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())
ask(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\\n")
ask(2, "tools/call", {"name": "query_sql", "arguments": {"sql": "SELECT 1"}})
ask(3, "tools/call", {"name": "submit", "arguments": GOOD})
"""


@pytest.mark.slow
def test_a_submitted_answer_counts_even_when_the_agent_hangs_afterwards(external_run):
    run_dir, run, diagnosis = external_run(SUBMIT + "time.sleep(600)", needs=["mcp"], limits={"seconds": 15})
    assert (run.status, run.limits_hit) == (RunStatus.DONE, ("seconds",))
    assert diagnosis.root_causes[0].service == "cart"
    (step,) = read_one(run_dir / "trace.jsonl").steps
    assert [call.tool for call in step.tool_logs] == ["query_sql", "submit"]
    assert len((run_dir / "actions.jsonl").read_text().splitlines()) == 2
    assert run.spent["tool_calls"] == 1


@pytest.mark.slow
@pytest.mark.skipif(sealing_refusal() is not None, reason=f"this machine cannot seal: {sealing_refusal()}")
def test_sealed_it_reaches_the_tools_through_the_bridge(external_run):
    _, run, diagnosis = external_run(SUBMIT, needs=["mcp"], sealing="required")
    assert (run.status, run.isolation) == (RunStatus.DONE, "sealed")
    assert diagnosis.root_causes[0].service == "cart"


ASK = """
import urllib.request, urllib.error
def ask(n=1, stream=False):
    said = [{"role": "user", "content": f"go {n}"}]
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "stream": stream, "messages": said}).encode()
    head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    return urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=30).read()
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        (tmp_path / "model.yaml").write_text(text)
        return f"scripted:{tmp_path / 'model.yaml'}"

    return write


@pytest.mark.parametrize("sealing", ["off", "required"])
def test_a_model_behind_the_proxy_is_on_record_call_by_call(external_run, script, monkeypatch, sealing):
    if sealing == "required" and sealing_refusal():
        pytest.skip(f"this machine cannot seal: {sealing_refusal()}")
    monkeypatch.setenv("OPENAI_API_KEY", "the-real-key")
    run_dir, run, _ = external_run(
        ASK
        + "assert 'the-real-key' not in os.environ.values()\nprint(json.loads(ask())['choices'][0]['message']['content'])",
        needs=["model"],
        model=script(f"rules:\n  - reply: '{json.dumps(GOOD).replace(chr(39), chr(39) * 2)}'\n"),
        sealing=sealing,
    )
    assert run.status is RunStatus.DONE, run.error
    (step,) = read_one(run_dir / "trace.jsonl").steps
    assert "go 1" in step.input_context
    assert run.spent["model_calls"] == 1
    assert run.spent["input_tokens"] > 0
    assert "the-real-key" not in "".join(path.read_text() for path in run_dir.iterdir() if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "stream", "error"),
    [
        ("status: 429", False, "HTTP Error 429"),
        ("status: 500", False, "HTTP Error 500"),
        ("broken: garbage", False, "DecodeError"),
        ("broken: half", True, "IncompleteRead"),
    ],
)
def test_what_its_model_does_to_an_agent_is_in_its_error_and_in_the_trace(external_run, script, rule, stream, error):
    run_dir, run, _ = external_run(
        ASK + f"print(json.dumps(json.loads(ask(stream={stream}))))",
        needs=["model"],
        model=script(f"rules:\n  - {rule}\n"),
    )
    assert run.status is RunStatus.FAILED
    assert error in (run.error or "")
    assert len(read_one(run_dir / "trace.jsonl").steps) == 1


def test_an_external_agents_calls_are_limited_and_it_is_told(external_run, script):
    _, run, diagnosis = external_run(
        ASK + "try:\n    for n in range(9):\n        ask(n)\nexcept urllib.error.HTTPError as error:\n"
        "    assert error.code == 422 and b'limit of model_calls' in error.read()\n    print(json.dumps(GOOD))",
        needs=["model"],
        model=script("rules:\n  - reply: hm\n"),
        limits={"model_calls": 3},
    )
    assert run.status is RunStatus.DONE, run.error
    assert diagnosis is not None
    assert run.limits_hit == ("model_calls",)


# The built-in agent in its worker ---------------------------------------------------------------------------------------


@pytest.fixture
def endpoint(monkeypatch):
    """Return a function that makes a script the endpoint of OPENAI_BASE_URL, over real HTTP, and gives a block."""
    from contextlib import contextmanager

    @contextmanager
    def serve(respond):
        with running_server(respond) as url:
            monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
            monkeypatch.setenv("OPENAI_API_KEY", "key")
            yield

    return serve


def rca(**limits):
    return setup_of("rca", model="made", limits={"pause_s": 0.01, **limits})


@pytest.mark.slow
def test_the_built_in_agent_over_http_leaves_answer_trace_and_account(store, item, endpoint):
    def respond(messages, _tools):
        if is_synthesis(messages):
            return says(GOOD)
        return calls("query_sql", sql="SELECT 1") if len(messages) < 3 else says("done")

    with endpoint(respond):
        run_dir = run_agent(store, item, rca())
    run = read_run(run_dir)
    assert (run.status, run.isolation, run.solver.name) == (RunStatus.DONE, "in_process", "rca (made)"), run.error
    assert read_diagnosis(run_dir).root_causes[0].service == "cart"
    assert [step.agent_name for step in read_one(run_dir / "trace.jsonl").steps] == ["investigator"] * 2 + [
        "synthesiser"
    ]
    assert run.spent["tool_calls"] == 1
    assert run.limits["tool_calls"] == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(error_status=429), "429"),
        (Reply(error_status=500), "500"),
        (Reply(broken="garbage"), "no chat completion"),
        (Reply(broken="half"), "did not answer"),
    ],
)
def test_an_endpoint_that_gives_no_answer_aborts_the_run_which_is_then_run_again(store, item, endpoint, reply, said):
    with endpoint(lambda *_: reply):
        first = run_agent(store, item, rca(retries=1))
    run = read_run(first)
    assert run.status is RunStatus.ABORTED
    assert said in (run.error or "")
    assert len(read_one(first / "trace.jsonl").steps) == 2
    with endpoint(lambda messages, _: says(GOOD if is_synthesis(messages) else "done")):
        second = run_agent(store, item, rca(retries=1))
    assert read_run(second).status is RunStatus.DONE
    assert (second.parent, second.name) == (first.parent, "2")


@pytest.mark.slow
def test_a_request_that_is_refused_is_a_failed_run(store, item, endpoint):
    with endpoint(lambda *_: Reply(error_status=401)):
        run = read_run(run_agent(store, item, rca()))
    assert run.status is RunStatus.FAILED
    assert "401" in (run.error or "")


@pytest.mark.slow
def test_a_model_that_hangs_is_a_timeout_and_what_was_done_before_is_kept(store, item, tmp_path):
    script = tmp_path / "hangs.py"
    script.write_text(
        "import time\nfrom opsassay.solvers.agents.models import Reply, ToolRequest\n"
        "def respond(messages, tools):\n    if len(messages) < 3:\n"
        "        return Reply(tool_requests=(ToolRequest(tool='list_tables'),))\n    time.sleep(600)\n"
    )
    run_dir = run_agent(store, item, setup_of("rca", model=f"scripted:{script}", limits={"seconds": 20}))
    run = read_run(run_dir)
    assert (run.status, run.limits_hit) == (RunStatus.TIMEOUT, ("seconds",))
    assert run.spent["tool_calls"] == 1
    assert read_one(run_dir / "trace.jsonl").steps[0].tool_logs[0].tool == "list_tables"


def test_a_model_that_never_answers_by_the_contract_is_a_failed_run_with_the_reason(store, item, endpoint):
    with endpoint(lambda *_: says("the cart, surely")):
        run = read_run(run_agent(store, item, rca()))
    assert run.status is RunStatus.FAILED
    assert "no answer by the contract: the answer is no JSON" in (run.error or "")
    assert run.limits_hit == ("repairs",)


@pytest.mark.slow
def test_a_recorded_session_replays_to_the_same_answer(store, item, tmp_path, monkeypatch):
    def respond(messages, _tools):
        if is_synthesis(messages):
            return says(GOOD)
        return calls("query_sql", sql="SELECT 1") if len(messages) < 3 else says("done")

    record = tmp_path / "record"
    monkeypatch.setenv("OPENAI_API_KEY", issue_token(record, "s"))
    with running_server(respond) as upstream, running_proxy(ProxySettings(upstream=upstream, directory=record)) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        first = run_agent(store, item, rca())
    monkeypatch.delenv("OPENAI_BASE_URL")
    second = run_agent(store, item, setup_of("rca", model=f"replayed:{record / 'sessions' / 's'}"))
    assert read_run(first).status is read_run(second).status is RunStatus.DONE, read_run(second).error
    assert (first / "diagnosis.json").read_bytes() == (second / "diagnosis.json").read_bytes()
    assert first.parent != second.parent


# Agents in Python that others bring -------------------------------------------------------------------------------------


def python_agent(name, tmp_path):
    return setup_of(f"evals.py_agents:{name}", model=script_model(tmp_path, "hm"))


def test_an_agent_in_python_of_your_own_runs_in_a_worker_and_is_marked_unsealed(store, item, tmp_path):
    run_dir = run_agent(store, item, python_agent("Looks", tmp_path))
    run = read_run(run_dir)
    assert (run.status, run.isolation, run.solver.name) == (RunStatus.DONE, "unsealed", "Looks (scripted:hm.yaml)")
    assert [step.agent_name for step in read_one(run_dir / "trace.jsonl").steps] == ["looker"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [("Breaks", "ZeroDivisionError"), ("AnswersText", "AttributeError"), ("Vanishes", "without an answer")],
)
def test_what_breaks_in_it_is_the_runs_outcome(store, item, tmp_path, name, reason):
    run = read_run(run_agent(store, item, python_agent(name, tmp_path)))
    assert run.status is RunStatus.FAILED
    assert reason in (run.error or "")


def test_it_is_flagged_for_the_canary_too(store, item, tmp_path):
    assert read_run(run_agent(store, item, python_agent("ReadsTheCanary", tmp_path))).flags == ("canary",)


# Cells, masks, wrong use ------------------------------------------------------------------------------------------------


def test_another_model_limit_prompt_or_file_is_another_solver(tmp_path):
    base = setup_of("rca", model=script_model(tmp_path, "a"))
    others = [
        setup_of("rca", model=script_model(tmp_path, "b")),
        setup_of("rca", model=base.model, limits={"tool_calls": 7}),
        setup_of("rca", model=base.model, temperature=0.5),
    ]
    assert len({setup.solver_hash() for setup in (base, *others)}) == 4
    assert setup_of("rca", model=base.model).solver_hash() == base.solver_hash()
    first = setup_of(str(agent(tmp_path / "x", "pass")))
    before = first.solver_hash()
    assert setup_of(str(agent(tmp_path / "x", "print()"))).solver_hash() != before


def script_model(folder: Path, name: str) -> str:
    (folder / f"{name}.yaml").write_text(f"rules:\n  - reply: {name}\n")
    return f"scripted:{folder / name}.yaml"


def test_a_mask_is_an_arm_of_its_own_and_is_what_the_agent_sees(store, item, tmp_path, monkeypatch):
    setup = setup_of(
        str(
            agent(
                tmp_path / "agent", "print(json.dumps(GOOD))\nprint((view / 'env.json').read_text(), file=sys.stderr)"
            )
        ),
        sealing="off",
    )
    whole = run_agent(store, item, setup)
    less = run_agent(store, item, setup, mask=Mask(drop=("logs",)))
    assert read_run(whole).arm == "default"
    assert read_run(less).arm.startswith("mask-")
    assert read_run(less).item_hash == read_run(whole).item_hash
    assert '"logs"' in (less / "solver.log").read_text()
    assert '"mask"' not in (whole / "solver.log").read_text()


@pytest.mark.parametrize(
    ("name", "arguments", "error", "sentence"),
    [
        ("rca", {}, UserError, "name one with --model"),
        ("rcaa", {"model": "scripted:x"}, NotFoundError, "did you mean 'rca'?"),
        ("rca", {"model": "scripted:/no/such.yaml"}, UserError, "Cannot read"),
        ("no.such:Agent", {"model": "m"}, UserError, "cannot be imported"),
        ("json:JSONDecoder", {"model": "m"}, UserError, "is no agent"),
        ("/no/agent.yaml", {}, UserError, "Cannot read"),
        ("rca", {"model": "m", "limits": {"money_usd": 1.0}}, UserError, "needs prices"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(monkeypatch, name, arguments, error, sentence):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with pytest.raises(error, match=sentence.replace("?", r"\?")):
        setup_of(name, **arguments)


def test_a_model_of_an_endpoint_needs_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        setup_of("rca", model="made")


def test_the_places_inside_the_seal_are_those_that_the_seal_makes():
    assert (commands.VIEW_INSIDE, commands.WORK_INSIDE) == ("/view", "/work")
