"""kubectl for agents: an argument list that is judged before it is run, as the user that the agent is and no other.

Only verbs and options that are listed pass. No file of this machine is read (manifests come with the call, as ``-f -``),
no other cluster, user or server can be named, nothing waits for a terminal or an editor. The rest is up to the cluster.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from opsassay.core.errors import OperationError, UserError

OUTPUT_BYTES = 256 * 1024
"""What is read of an answer; the rest is thrown away."""
TIMEOUT_S = 30.0

LOOKING = frozenset({
    "get", "describe", "logs", "top", "explain", "api-resources", "api-versions", "version", "auth", "wait", "cluster-info",
})  # fmt: skip
CHANGING = frozenset({
    "apply", "create", "replace", "patch", "delete", "scale", "autoscale", "set", "label", "annotate", "taint", "cordon",
    "uncordon", "drain", "expose", "run", "exec", "rollout",
})  # fmt: skip
LOOKING_PARTS = {"rollout": frozenset({"status", "history"}), "auth": frozenset({"can-i"})}
"""Verbs of two words: the second ones that change nothing; `auth` has no others."""

ONE_WORD = frozenset({"apply", "cluster-info"})
"""Verbs whose second word would open an editor, or write files."""

SWITCHES = frozenset({
    "all", "all-namespaces", "allow-missing-template-keys", "cascade", "delete-emptydir-data", "delete-local-data",
    "disable-eviction", "dry-run", "force", "help", "ignore-daemonsets", "ignore-not-found", "list", "local", "namespaced",
    "no-headers", "now", "overwrite", "previous", "prune", "quiet", "recursive", "save-config", "server-side",
    "show-events", "show-kind", "show-labels", "show-managed-fields", "timestamps", "validate", "wait", "client", "short",
    "all-containers", "prefix", "containers", "force-conflicts", "command",
})  # fmt: skip
"""Options that stand alone, or with =VALUE."""
VALUES = frozenset({
    "namespace", "output", "selector", "field-selector", "filename", "container", "patch", "type", "replicas", "timeout",
    "grace-period", "for", "sort-by", "label-columns", "tail", "since", "since-time", "limit-bytes", "image", "port",
    "target-port", "name", "current-replicas", "resource-version", "to-revision", "revision", "from-literal", "env",
    "labels", "restart", "overrides", "limits", "requests", "min", "max", "cpu-percent", "api-group", "verbs", "keys",
    "from",
    "chunk-size", "subresource", "pod-selector", "protocol", "max-log-requests", "raw", "serviceaccount",
    "skip-wait-for-delete-timeout", "hard", "min-available", "max-unavailable", "tcp", "cluster-ip", "external-name",
    "session-affinity",
})  # fmt: skip
"""Options that have a value."""
SHORT = {"n": "namespace", "o": "output", "l": "selector", "c": "container", "f": "filename", "A": "all-namespaces",
         "R": "recursive", "q": "quiet", "h": "help", "L": "label-columns"}  # fmt: skip
SHORT_OF = {"logs": {"p": "previous"}, "patch": {"p": "patch"}, "set": {"e": "env"}}
"""Letters that mean something else to a verb; `-f` of logs follows, and is not there."""
IGNORED = frozenset({"-i", "-t", "-it", "-ti", "--stdin", "--tty"})
"""Asked for out of habit: there is no terminal, and no harm."""
FORMATS = re.compile(
    r"json|yaml|name|wide|(jsonpath|jsonpath-as-json|go-template|template|custom-columns)(=.*)?", re.DOTALL
)


class ParsedCall(NamedTuple):
    """A judged call: what is given to kubectl, its *verb*, and whether it may *change* something."""

    arguments: tuple[str, ...]
    verb: str
    changes: bool


def parse_kubectl(arguments: Sequence[str], *, has_input: bool = False) -> ParsedCall:
    """Check kubectl's *arguments* (*has_input*: with a manifest on stdin) and return them; raises UserError."""
    given = list(arguments[1:] if arguments and arguments[0] == "kubectl" else arguments)
    if any("\0" in word for word in given):
        raise UserError("An argument holds a NUL character.")
    before, after = _split(given)
    positional: list[str] = []
    options: list[str] = []
    verb = before[0] if before else ""
    if verb not in LOOKING | CHANGING:
        known = ", ".join(sorted(LOOKING | CHANGING))
        raise UserError(f"kubectl {verb[:40] or '(nothing)'} is not allowed; the first word is one of {known}.")
    words_left = iter(before)
    for word in words_left:
        if not word.startswith("-"):
            positional.append(word)
        elif word not in IGNORED:
            options.append(_option(word, verb, words_left))
    _refuse_files(options, verb, has_input=has_input)
    if verb == "exec" and not after:
        raise UserError("kubectl exec needs a command after `--`, each word an argument of its own.")
    part = positional[1] if len(positional) > 1 else ""
    looks = verb in LOOKING or part in LOOKING_PARTS.get(verb, ())
    if verb == "auth" and part != "can-i":
        raise UserError("Of kubectl auth there is can-i.")
    if verb in ONE_WORD and part:
        raise UserError(f"kubectl {verb} takes no further word, only options.")
    tail = ["--", *after] if after else []
    return ParsedCall((*positional, *options, *tail), verb, not looks)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return (words before the first ``--``, words after it); the latter are a command for a container."""
    if "--" not in words:
        return words, []
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


def _option(word: str, verb: str, rest: Iterator[str]) -> str:
    """Return the option *word* of *verb* as ``--name=value``, the value from *rest* if needed; raises UserError."""
    name, equals, value = word.partition("=")
    if name.startswith("--"):
        name = name[2:]
    else:
        letter = name[1:]
        long = SHORT_OF.get(verb, {}).get(letter) or SHORT.get(letter)
        if verb == "logs" and letter == "f":
            long = None
        if long is None:
            raise UserError(
                f"The option {name[:20]!r} of {verb} is not allowed; a letter and its value are arguments of their own."
            )
        name = long
    if name in SWITCHES:
        return f"--{name}{equals}{value}"
    if name not in VALUES:
        raise UserError(f"The option --{name[:40]} of {verb} is not allowed.")
    if not equals:
        following = next(rest, None)
        if following is None:
            raise UserError(f"The option --{name} needs a value.")
        value = following
    if name == "raw" and verb != "get":
        raise UserError("--raw is there for get.")
    return f"--{name}={value}"


def _refuse_files(options: Sequence[str], verb: str, *, has_input: bool) -> None:
    """Raise UserError for *options* that make kubectl read a file or a URL; `-f -` needs a manifest (*has_input*)."""
    for option in options:
        name, _, value = option.removeprefix("--").partition("=")
        if name == "filename" and value != "-":
            raise UserError("Only `-f -` is there: give the manifest in `input`.")
        if name == "filename" and not has_input:
            raise UserError(f"{verb} -f - needs the manifest in `input`.")
        if name == "output" and not FORMATS.fullmatch(value):
            raise UserError(
                f"The output format {value[:40]!r} is not allowed; there are json, yaml, name, wide, jsonpath=."
            )
        if name == "from" and not value.startswith(("configmap/", "cronjob/")):
            raise UserError("--from names a configmap/NAME.")


class Kubectl:
    """Runs judged calls with the binary *program* and the credentials in *kubeconfig*, in an empty folder of their own."""

    def __init__(self, kubeconfig: Path, program: str = "kubectl") -> None:
        self._program, self._kubeconfig = _find_program(program), kubeconfig.resolve()

    def run(self, request: ParsedCall, stdin: str | None = None, timeout_s: float = TIMEOUT_S) -> str:
        """Run kubectl with *stdin* and return its output; raises OperationError if it fails or exceeds *timeout_s*."""
        with tempfile.TemporaryDirectory(prefix="opsassay-kubectl-") as home:
            command = [self._program, f"--kubeconfig={self._kubeconfig}", *request.arguments]
            printed, code = _run_bounded(command, home, stdin, timeout_s)
        if code is None:
            raise OperationError(f"kubectl {request.verb} was ended after {timeout_s:g} s; it had printed:\n{printed}")
        if code:
            raise OperationError(f"kubectl {request.verb} ended with {code}:\n{printed}")
        return printed


def require_near(program: str, server: str) -> None:
    """Raise UserError unless *program* is a kubectl at most one minor version from *server*, a version."""
    with tempfile.TemporaryDirectory(prefix="opsassay-kubectl-") as home:
        printed, code = _run_bounded(
            [_find_program(program), "version", "--client", "--output=json"], home, None, TIMEOUT_S
        )
    try:
        own = str(json.loads(printed)["clientVersion"]["gitVersion"])
        (major, minor), (served_major, served_minor) = _minor(own), _minor(server)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{program} does not tell its version (it ended with {code}); is it kubectl?") from error
    if major != served_major or abs(minor - served_minor) > 1:
        apart = f"{program} is {own} and the server {server}, more than one minor version apart"
        raise UserError(f"{apart}: name another one as `kubectl` in the plan's cluster block.")


def _minor(version: str) -> tuple[int, int]:
    """Return (major, minor) of a version such as ``v1.27.3-gke.100``."""
    major, minor = version.removeprefix("v").split(".")[:2]
    return int(major), int(minor)


def _find_program(program: str) -> str:
    """Return the path of *program*; raises UserError when it is not installed."""
    found = shutil.which(program)
    if found is None:
        raise UserError(f"There is no {program}; install kubectl, or name it as `kubectl` in the plan's cluster block.")
    return found


def _run_bounded(command: Sequence[str], home: str, stdin: str | None, timeout_s: float) -> tuple[str, int | None]:
    """Run *command* with *stdin* in the folder *home*; return (output up to a limit, exit status or None if killed)."""
    environment = {"HOME": home, "PATH": home, "LANG": "C.UTF-8"}  # there is nothing that it could start
    source = Path(home) / ".input"
    source.write_text(stdin or "", encoding="utf-8")
    with source.open("rb") as feed, subprocess.Popen(
        command, stdin=feed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=home, env=environment,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            printed, whole = _read(process.stdout.fileno(), time.monotonic() + timeout_s)
            code = process.wait(2.0) if whole else None
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return printed.decode("utf-8", "replace"), code


def _read(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """Return (output of the pipe *descriptor* up to OUTPUT_BYTES, whether it ended before the monotonic *deadline*)."""
    kept = b""
    while (left := deadline - time.monotonic()) > 0 and select.select([descriptor], [], [], left)[0]:
        part = os.read(descriptor, 65536)
        if not part:
            return kept, True
        kept += part[: OUTPUT_BYTES - len(kept)]
    return kept, False
