"""What leaves the machine is free of what should not leave it, and the report says what was taken out."""

from __future__ import annotations

import base64
import json

import pytest
from pydantic import ValidationError

from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.proxy.redaction import RedactionRules, hashed, hidden_in_base64, redact_trace

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJmZHNlIn0.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "email": [
    "ada.l@example.org", "x+y@mail.example.co.uk", "ADA@EXAMPLE.ORG", "ada%40example.org", r"ada\u0040example.org",
        "ada [at] example [dot] org", "ada(at)example.org", "ädä@bücher.example", "git@github.com",
    ],
    "path": [
        "/home/ada/notes.txt", "~/work/x", "C:\\Users\\ada\\x.txt", "/Users/ada/Library", "~ada/.ssh/id_rsa",
    "file:///home/ada/x", "C:/Users/ada/x.txt", "C:\\\\Users\\\\ada\\\\x.txt", r"\/home\/ada\/x",
    "\\\\nas01\\homes\\ada",
        "/mnt/c/Users/ada", "/home/日本/x", "D:\\Program Files (x86)\\ada\\key.txt",
    ],
    "key": [
    "sk-proj-abcdefghij0123456789", "ghp_0123456789abcdefghij", "AKIA0123456789ABCDEF",
    "sk-ant-api03-0Ab_cdefghijklm",
        "github_pat_11ABCDEFG0123456789_abc", "xoxb-1234567890-abcdef", "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "hf_AbCdEfGhIjKlMnOpQr", "glpat-ABCDEFGHIJ0123456789", "npm_0123456789abcdefghijABCDEFGHIJ",
    "sk_live_0123456789ab",
        "SG.0123456789abcdefgh.0123456789abcdefgh", "opsassay-0123456789abcdefghijABCD", JWT, PEM,
    ],
    "address": ["10.1.2.3", "2001:0db8:85a3:0000:0000:8a2e:0370:7334", "fe80::1ff:fe23:4567:890a"],
    "phone": ["+36 30 123 4567", "+1 (555) 123-4567", "+442071838750"],
}  # fmt: skip
NAMED = [
    ("password=", "hunter2!"), ('"password": "', "swordfish"), (r"{\"api_key\": \"", "abc123def"),
    ("Authorization: Bearer ", "abc.1234567"),
    ("authorization: Basic ", "YWRhOmxvdmVsYWNl"), ("AccountKey=", "aGVsbG8gd29ybGQ5OTk5OTk5=="), ("X-Token: ",
    "t0k3n-value"),
    ("postgres://", "ada:s3cret"), ("AWS_SECRET_ACCESS_KEY = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("db_passwd: ", "pässword"),
]  # fmt: skip
HARMLESS = [
    "version 1.2.3", "GET /v1/models", "https://example.org/path/x", "a@b", "3/4 of them", "and/or", "10:30",
    "token count 12",
    "skipping-the-validation-step-entirely", "max_tokens: 4096", "tokens used: 1234567890123456789",
    "token: 12345678",
    "password authentication failed for user", "password: incorrect", '"password": null', "secret is missing",
    "lodash@4.17.21",
    "ts-travel-service-5d8f9c7b6d-x2x7k", "4bf92f3577b34da6a3ce929d0e0e4736",
    "sha256:2c26b46b68ffc68ff99b453c1d304134",
    "2026-01-02T03:04:05.123456789+02:00",
    "java.lang.NullPointerException: null at com.shop.Cart.add(Cart.java:42)", "v1.2.3.4",
    "listening on 0.0.0.0:8080 and 127.0.0.1", "p99 = 1.5e+08 ms", "@@ -1,7 +1,9 @@", "+0530",
    "basic authentication required",
    "bearer of bad news", "SELECT count(*) FROM abnormal_traces WHERE service_name = 'cart'",
    r"re.compile('\\d+\\w')", "/api/v1/home",
    "ratio a/b/c", "c:d", "http://10-1-2-3.example/x", "std::vector<int>",
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "aGVsbG8gd29ybGQsIHRoaXMgaXMgb25seSBhIGdyZWV0aW5n", "user@host", "~5/10 of calls", "rate: +1000000",
    "hash_of_key", "disk-pressure-2",
]  # fmt: skip


def trace_with(text):
    call = ToolCall(tool="sh", arguments={"cmd": ["cat", text]}, output=text)
    step = TraceStep(
        step_id=1, agent_id="0", agent_name="A", input_context=text, output_content=f"({text})", tool_logs=(call,)
    )
    return Trace(
        task_id="t",
        task_instruction=text,
        system_name="s",
        agent_configuration={"A": {"p": text}},
        outcome=text,
        steps=(step,),
    )


@pytest.mark.parametrize(("kind", "secret"), [(kind, text) for kind, texts in SECRETS.items() for text in texts])
def test_a_secret_is_nowhere_in_the_trace_or_the_report(kind, secret):
    clean, report = redact_trace(trace_with(secret), RedactionRules())
    assert secret not in clean.pretty_json() + json.dumps([row.model_dump() for row in report])
    assert json.dumps(secret)[1:-1] not in clean.pretty_json()
    (row,) = report
    assert (row.kind, row.count, row.distinct, row.steps) == (kind, 7, 1, (1,))


@pytest.mark.parametrize(("before", "secret"), NAMED)
def test_what_stands_behind_a_telling_name_goes_and_the_name_stays(before, secret):
    clean, report = redact_trace(
        trace_with(f"{before}{secret}@host" if "://" in before else before + secret), RedactionRules()
    )
    assert secret not in json.dumps(clean.model_dump(), ensure_ascii=False)
    assert clean.steps[0].input_context.startswith(f"{before}[key]")
    assert [row.kind for row in report] == ["key"]


@pytest.mark.parametrize(
    "nested",
    [
        json.dumps({"a": json.dumps({"mail": "ada@example.org", "file": "/home/ada/x"})}),
        json.dumps(json.dumps({"a": ["C:\\Users\\ada\\x", "sk-proj-0123456789abc"]})),
        base64.b64encode(b'{"mail": "ada@example.org"}').decode(),
        base64.urlsafe_b64encode("key: ghp_0123456789abcdefghij – ada".encode()).decode(),
        'open("/Users/Ada Lovelace/private notes.txt")',
        "https://ada:pw12345@example.org/x?mail=ada%40example.org&next=%2F",
        "PATH=/usr/local/bin:/home/ada/bin",
        PEM[:-30],
        '<ada@example.org>,"Ada L." <ada@example.org>;mailto:ada@example.org',
    ],
)
def test_what_is_nested_encoded_or_quoted_is_found(nested):
    clean, report = redact_trace(trace_with(nested), RedactionRules())
    text = json.dumps(clean.model_dump(), ensure_ascii=False)
    assert report
    for told in ("ada@", "ada%40", "ada/", "\\ada", "Lovelace", "pw12345", "ghp_", "sk-proj", "MIIE"):
        assert told not in text
    assert not any("ada" in inside.lower() for _, inside in hidden_in_base64(text))


def test_names_of_agents_runs_and_fields_are_texts_too():
    call = ToolCall(tool="edit", arguments={"/home/ada/x": 1, "/home/ada/y": {"ada@example.org": [2]}}, output="")
    step = TraceStep(
        step_id=1, agent_id="ada@example.org", agent_name="ada@example.org", input_context="", output_content="",
        tool_logs=(call,), model="/opt/models/ada", request_id="ada@example.org",
    )  # fmt: skip
    trace = Trace(
        task_id="/home/ada/t", task_instruction="", system_name="ada@example.org", outcome="10.1.2.3 won", steps=(step,)
    )
    clean, _ = redact_trace(trace, RedactionRules())
    assert "ada" not in clean.pretty_json()
    assert clean.steps[0].tool_logs[0].arguments == {"[path]": 1, "[path] (2)": {"[email]": [2]}}
    assert (clean.steps[0].agent_name, clean.outcome) == ("[email]", "[address] won")
    assert hashed(trace).steps[0].agent_name == "ada@example.org"  # who acted is what a hashed variant is for


@pytest.mark.slow
def test_megabytes_without_an_end_are_read_in_one_pass():
    for piece in ("a", "A1", "a.", "/home", "\\", "+1", "x@", "ab:", "%40", "~/a"):
        redact_trace(trace_with(piece * (50_000 // len(piece))), RedactionRules())


@pytest.mark.parametrize("text", HARMLESS)
def test_what_tells_nothing_stays(text):
    assert redact_trace(trace_with(text), RedactionRules()) == (trace_with(text), [])


def test_own_words_and_patterns_come_first_and_marks_can_be_numbered():
    rules = RedactionRules(
        kinds=("email",), words=("Ada", "Ada Lovelace"), patterns={"ticket": r"T-\d+"}, keep_distinct=True
    )
    clean, report = redact_trace(trace_with("Ada Lovelace T-1 T-2 T-1 a@x.org"), rules)
    assert clean.steps[0].input_context == "[word:1] [ticket:1] [ticket:2] [ticket:1] [email:1]"
    assert [(row.kind, row.distinct) for row in report] == [("ticket", 2), ("email", 1), ("word", 1)]


def test_a_hashed_variant_tells_who_acted_and_nothing_that_was_said():
    clean = hashed(trace_with("the secret plan"))
    assert "secret plan" not in clean.pretty_json()
    assert clean.steps[0].agent_name == "A"
    assert clean.steps[0].input_context == clean.steps[0].tool_logs[0].output  # equal texts stay equal
    assert (
        clean.steps[0].input_context != hashed(trace_with("the secret plan")).steps[0].input_context
    )  # no dictionary helps


def test_rules_that_cannot_work_are_refused():
    with pytest.raises(ValidationError, match="no pattern 'emails'"):
        RedactionRules(kinds=("emails",))
    with pytest.raises(ValidationError, match="no regular expression"):
        RedactionRules(patterns={"x": "("})
