"""What judges in the seal: one policy over many inputs, an outcome a line. Runs with one engine of Rego alone.

::

    python worker.py ENGINE POLICY FOLDER PACKAGE RULE SYNTAX    reads FOLDER/*.json, by name, and prints JSON

An engine says what is wrong with a policy by itself, which functions it calls and what it says of an input. Errors of
built-in functions are undefined where the engine can have it so, as in ``opa eval`` without ``--strict-builtin-errors``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

PACKAGE, RULE = "compliance", "compliant"
UNSTEADY = (
    "time.now_ns", "rand.intn", "uuid.rfc4122", "http.send", "opa.runtime", "net.lookup_ip_addr", "io.jwt.decode_verify",
    "io.jwt.encode_sign", "io.jwt.encode_sign_raw",
)  # fmt: skip
"""Functions whose value does not follow from the input, so that equal evidence could be judged differently."""
UNSURE = (
    "base64.is_valid", "ceil", "floor", "glob.match", "indexof", "json.filter", "json.marshal", "json.remove",
    "object.subset", "regex.is_valid", "semver.is_valid", "strings.replace_n", "time.add_date",
    "time.parse_rfc3339_ns", "to_number", "yaml.unmarshal",
)  # fmt: skip
"""Functions for which regorus and rego-cpp may agree on a value that OPA does not have."""
_SURE_VERB = re.compile(r"%[v%]")
OPA_PLACE = "/opt/opsassay-rego/opa"
UNDEFINED = object()
"""The value of the rule where it is undefined."""


class PolicyError(Exception):
    """A policy is invalid; the message is one sentence."""


class EvaluationError(Exception):
    """An engine returned neither a value nor undefined."""


class UnsureError(Exception):
    """Engines other than OPA may agree here on a wrong result; the message names the construct."""


class Engine(Protocol):
    """One engine with one policy loaded; its constructor raises PolicyError for an invalid policy."""

    package: str | None
    calls: set[str]

    def ask(self, document: str) -> Any:
        """Return the rule's value for the JSON text *document*, or UNDEFINED; raises EvaluationError, UnsureError."""


class OpaProgram:
    """The program ``opa``."""

    def __init__(self, policy: str, query: str, syntax: str) -> None:
        self._syntax = ["--v0-compatible"] if syntax == "v0" else []
        self._path, self._query = "/tmp/policy.rego", query  # noqa: S108 - of the seal alone
        Path(self._path).write_text(policy, encoding="utf-8")
        tree = self._run("parse", "--format", "json", self._path)
        if tree.returncode:
            raise PolicyError(_error_message(tree.stderr or tree.stdout))
        checked = self._run("check", self._path)
        if checked.returncode:
            raise PolicyError(_error_message(checked.stderr or checked.stdout))
        self.package, self.calls = _names_in_opa_tree(json.loads(tree.stdout))

    def ask(self, document: str) -> Any:
        """Return the rule's value for the input *document* (JSON text), or UNDEFINED; raises EvaluationError."""
        end = self._run("eval", "--format", "json", "--stdin-input", "--data", self._path, self._query, stdin=document)
        try:
            said = json.loads(end.stdout)
        except ValueError:
            raise EvaluationError(_error_message(end.stderr or end.stdout)) from None
        if said.get("errors"):
            raise EvaluationError(_error_message(said["errors"][0].get("message", "")))
        return said["result"][0]["expressions"][0]["value"] if said.get("result") else UNDEFINED

    def _run(self, verb: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the subcommand *verb* of ``opa`` with arguments *words*; return the completed process."""
        command = [OPA_PLACE, verb, *self._syntax, *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


class OpaLibrary:
    """OPA's Go engine as a shared library.

    It ends an evaluation with the first error of a built-in when all is done. So the query hands what the rule is to a
    function of ours: it is called where the evaluation came to its end, with the values, and with none for undefined.
    """

    def __init__(self, policy: str, query: str, syntax: str) -> None:
        from opa_bindings import OpaEngine, OpaError

        del syntax  # v1 alone
        self._error, self._said, self._engine = OpaError, list[Any](), OpaEngine()
        self._engine.print_handler = lambda *_: None
        name = f"said_{os.urandom(16).hex()}"  # no policy can know it
        self._query = f"values := [value | value := {query}]; {name}(values)"
        self._engine.register_function(name, self._keep, arity=1)
        try:
            self._engine.add_policy("policy.rego", policy)
            self._engine.eval_query("true")  # what compiles, and in it the types
            tree = self._engine.eval_query('tree := rego.parse_module("policy.rego", input)', policy)
        except OpaError as error:
            raise PolicyError(_error_message(error.message)) from error
        self.package, self.calls = _names_in_opa_tree(tree[0]["tree"])

    def _keep(self, values: list[Any]) -> bool:
        """Store one result, as the library's callback; return True to ask for the next."""
        self._said.append(values)
        return True

    def ask(self, document: str) -> Any:
        """Return the rule's value for the input *document* (JSON text), or UNDEFINED; raises EvaluationError."""
        self._said.clear()
        why = "no reason was given"
        try:
            self._engine.eval_query(self._query, json.loads(document))
        except self._error as error:
            why = _error_message(error.message)
        if not self._said:
            raise EvaluationError(why)
        return self._said[0][0] if self._said[0] else UNDEFINED


class Regorus:
    """regorus, which ends an evaluation with the first error of a built-in; it knows where it errs as rego-cpp does."""

    def __init__(self, policy: str, query: str, syntax: str) -> None:
        import regorus

        self._new, self._policy, self._query, self._syntax = regorus.Engine, policy, query, syntax
        try:
            engine = self._engine()
        except RuntimeError as error:
            raise PolicyError(_error_message(str(error))) from error
        self.package = engine.get_packages()[0].removeprefix("data.")
        tree = json.loads(engine.get_ast_as_json())
        self.calls = {_name_of(call["fcn"]) for call in _under_key(tree, "Call")}
        self._uncertain_constructs = [] if syntax == "v0" else sorted(_uncertain_constructs(tree, policy.encode()))
        computed = {one["op"] for one in _under_key(tree, "ArithExpr")} | self.calls
        self._computes = syntax != "v0" and bool(computed & {"Sub", "Mul", "Div", "sprintf"})
        numbers = [policy.encode()[one["span"]["start"] : one["span"]["end"]] for one in _under_key(tree, "Number")]
        self._broken = any(set(b".eE") & set(number) for number in numbers)

    def _engine(self) -> Any:
        """Return a new regorus engine with the policy loaded."""
        engine = self._new()
        engine.set_rego_v0(self._syntax == "v0")
        engine.add_policy("policy.rego", self._policy)
        return engine

    def ask(self, document: str) -> Any:
        """Return the rule's value for the JSON text *document*, or UNDEFINED; raises EvaluationError, UnsureError."""
        if self._uncertain_constructs:
            raise UnsureError(self._uncertain_constructs[0])
        if self._computes and (self._broken or _has_fractions(document)):
            raise UnsureError("what -, *, / and sprintf make of numbers that are not whole, or have an exponent")
        return self.own_value(document)

    def own_value(self, document: str) -> Any:
        """Return the rule's value as regorus computes it, even where OPA may differ; raises EvaluationError."""
        try:
            engine = self._engine()
            engine.set_input_json(document)
            found = engine.eval_query(self._query)["result"]
        except RuntimeError as error:
            raise EvaluationError(_error_message(str(error))) from error
        return found[0]["expressions"][0]["value"] if found else UNDEFINED


class RegoCpp:
    """rego-cpp, by the package regopy; it does not report called functions."""

    def __init__(self, policy: str, query: str, syntax: str) -> None:
        import regopy

        del syntax  # v1 alone
        self._new, self._policy, self._query = regopy.Interpreter, policy, query
        self.package, self.calls = None, set[str]()
        try:
            self._new().add_module("policy.rego", policy)
        except regopy.RegoError as error:
            raise PolicyError(_error_message(str(error))) from error

    def ask(self, document: str) -> Any:
        """Return the rule's value for the input *document* (JSON text), or UNDEFINED; raises EvaluationError."""
        import regopy

        try:
            engine = self._new()
            engine.add_module("policy.rego", self._policy)
            engine.set_input(json.loads(document))
            said = str(engine.query(f"value := {self._query}"))
            return UNDEFINED if said == "undefined" else json.loads(said)["bindings"]["value"]
        except (regopy.RegoError, ValueError, LookupError) as error:
            raise EvaluationError(_error_message(str(error))) from error


ENGINES: Mapping[str, Any] = {"opa": OpaProgram, "library": OpaLibrary, "regorus": Regorus, "rego-cpp": RegoCpp}


def read_policy(engine: str, policy: str, package: str, rule: str, syntax: str) -> Engine:
    """Return *engine*, which asks for *rule* of *package* in the *policy* (*syntax*: v0 or v1); raises PolicyError."""
    found: Engine = ENGINES[engine](policy, f"data.{package}.{rule}", syntax)
    if found.package not in (None, package):
        raise PolicyError(f"its package is {found.package}, not {package}")
    if called := next((name for name in UNSTEADY if name in found.calls), None):
        raise PolicyError(f"it calls {called}, so that what it says does not follow from the evidence")
    return found


def outcome_of(engine: Engine, document: str, query: str) -> tuple[str, str]:
    """Return (kind, reason) of evaluating *document*: "true", "false", "undefined", "other", "error" or "unsure".

    The reason is empty for the first three; "other" is a value that is no boolean, whose reason names the rule *query*.
    """
    try:
        value = engine.ask(document)
    except EvaluationError as error:
        return "error", str(error)
    except UnsureError as error:
        return "unsure", str(error)
    if value is UNDEFINED:
        return "undefined", ""
    if isinstance(value, bool):
        return str(value).lower(), ""
    return "other", f"{query} is no boolean but {json.dumps(value, default=str)[:80]}"


def _names_in_opa_tree(tree: Any) -> tuple[str, set[str]]:
    """Return the package name and all dotted names in OPA's syntax *tree*, called functions included."""
    package = ".".join(part["value"] for part in tree["package"]["path"][1:])
    names, todo = set[str](), [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if one.get("type") == "ref":
                parts = [str(part["value"]) for part in one["value"] if part["type"] in ("var", "string")]
                names |= {".".join(parts[:2]), ".".join(parts[:3])}
            todo += one.values()
        elif isinstance(one, list):
            todo += one
    return package, names


def _under_key(tree: Any, key: str, skip: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield every value under *key* in regorus's syntax *tree*, at any depth; the keys *skip* are not entered."""
    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if key in one:
                yield one[key]
            todo += [value for name, value in one.items() if name not in skip]
        elif isinstance(one, list):
            todo += one


def _uncertain_constructs(tree: Any, text: bytes) -> Iterator[str]:
    """Yield each construct in the policy *text* for which other engines than OPA could agree on a wrong result."""
    for call in _under_key(tree, "Call"):
        name = _name_of(call["fcn"])
        if name in UNSURE:
            yield f"the function {name}"
        written = {"value": "%", **call["params"][0].get("String", {}), **call["params"][0].get("RawString", {})}
        if name == "sprintf" and "%" in _SURE_VERB.sub("", written["value"]):
            yield "sprintf with a verb that is not %v"
    if any(one.get("Number", {"value": 0})["value"] < 0 for one in _under_key(tree, "index")):
        yield "an index below 0"
    for stmts in _under_key(tree, "stmts"):
        literals = [stmt["literal"] for stmt in stmts]
        spans = [span for one in literals for span in one.get("SomeVars", {"vars": []})["vars"]]
        declared = {text[span["start"] : span["end"]].decode() for span in spans}
        under = {one["value"] for literal in literals for one in _free_variables(literal.get("NotExpr"))}
        bound = {one["value"] for literal in literals if "NotExpr" not in literal for one in _free_variables(literal)}
        if under & {"_", *(declared - bound)}:
            yield "a variable under `not` that nothing binds"


def _free_variables(tree: Any) -> Iterator[Any]:
    """Yield the variables of *tree* except those local to a comprehension in it."""
    return _under_key(tree, "Var", ("ArrayCompr", "SetCompr", "ObjectCompr"))


def _has_fractions(document: str) -> bool:
    """Return whether a number in the JSON text *document* has a decimal point or an exponent."""
    found: list[str] = []
    json.loads(document, parse_float=found.append)
    return bool(found)


def _name_of(function: Any) -> str:
    """Return the dotted name of a called function, "" for a reference that is no plain name."""
    parts: list[str] = []
    while "Var" not in function:
        ((kind, ref),) = function.items()
        if kind == "RefDot":
            parts.append(ref["field"][1])
        elif kind == "RefBrack" and "String" in ref["index"]:
            parts.append(ref["index"]["String"]["value"])
        else:
            return ""
        function = ref["refr"]
    return ".".join([function["Var"]["value"], *reversed(parts)])


def _error_message(text: str) -> str:
    """Return the message of an engine's error, without its source excerpt and stack."""
    lines = text.split("Stack backtrace", maxsplit=1)[0].strip().splitlines()
    if len(lines) > 1 and lines[0].rstrip(":").endswith(("errors occurred", "error occurred", "Errors")):
        lines = lines[1:]
    said = next((line for line in lines if line.startswith("error:")), None)
    where = next((line.strip("-> ") for line in lines if line.strip().startswith("-->")), "")
    if said is None:
        said = (lines[-1] if where else lines[0]) if lines else "no reason was given"
    return " ".join(f"{said.removeprefix('error: ')} ({where})".split() if where else said.split())[:300]


def own_output() -> TextIO:
    """Return a stream to the original standard output; from then on all other prints go to standard error."""
    found = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return found


def main() -> None:
    """Evaluate the policy on each input and print one JSON line for each, flushed at once."""
    sys.setrecursionlimit(10_000)
    output = own_output()
    name, policy, folder, package, rule, syntax = sys.argv[1:]
    try:
        engine = read_policy(name, Path(policy).read_text(encoding="utf-8"), package, rule, syntax)
    except PolicyError as error:
        print(json.dumps(["checked", str(error)]), file=output)
        return
    print(json.dumps(["checked", ""]), file=output)
    for path in sorted(Path(folder).glob("*.json")):
        print(json.dumps(outcome_of(engine, path.read_text(encoding="utf-8"), f"data.{package}.{rule}")), file=output)


if __name__ == "__main__":
    main()
