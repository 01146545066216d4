"""What a command inside a pod may change: nothing when it only looks, else the pod, and a service that it writes to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

LOOKS = frozenset({
    "cat", "df", "du", "free", "getent", "head", "id", "ls", "nslookup", "printenv", "ps", "pwd",
    "stat", "tail", "true", "uname", "wc", "whoami",
})  # fmt: skip
"""Programs that change nothing whatever their arguments are; a shell or an interpreter may do anything."""
BARE = frozenset({"date", "env", "hostname"})
"""Programs that change nothing when they stand alone: with arguments they set a name or a clock, or run another program."""
REQUESTS = frozenset({"curl", "wget"})
_WRITES = ("-d", "--data", "-F", "--form", "-T", "--upload-file", "--post", "--body", "--json")
_FILES = ("-o", "-O", "--output", "--remote-name", "-K", "--config", "-P", "--directory-prefix")
NOWHERE = ("-", "/dev/null")
"""Where an answer is written to without changing a file; wget writes one unless it is given a place."""
_METHOD = ("-X", "--request", "--method")


def touched_by(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return what ``kubectl exec`` with *arguments* may change: the pod and a service; () if it only reads."""
    cut = arguments.index("--")
    pod = next((word for word in arguments[1:cut] if not word.startswith("-")), "").rpartition("/")[2]
    program, *rest = arguments[cut + 1 :]
    name = program.rpartition("/")[2]
    if name in LOOKS or (name in BARE and not rest):
        return ()
    if name not in REQUESTS:
        return (pod,)
    called = tuple(sorted({_service_of_url(word) for word in rest if "://" in word}))
    files = any(target not in NOWHERE for target in _files(rest)) or (name == "wget" and not _files(rest))
    writes = any(_is_option(word, _WRITES) for word in rest) or _find_method(rest) not in ("GET", "HEAD")
    return (*((pod,) if files else ()), *(called if writes else ()))


def _files(words: Sequence[str]) -> list[str]:
    """Return the file paths that curl options in *words* name, in the same word or the next one."""
    found = []
    for number, word in enumerate(words):
        if _is_option(word, _FILES):
            attached = word.partition("=")[2] if word.startswith("--") else "-" if word.endswith(("O-", "o-")) else ""
            found.append(attached or (words[number + 1] if number + 1 < len(words) else ""))
    return found


def _find_method(words: Sequence[str]) -> str:
    """Return the HTTP method of the curl command *words*."""
    for number, word in enumerate(words):
        for option in _METHOD:
            if word == option:
                return words[number + 1].upper() if number + 1 < len(words) else ""
            if word.startswith(f"{option}=") or (option == "-X" and word.startswith("-X")):
                return word.removeprefix(option).lstrip("=").upper()
    return "GET"


def _is_option(word: str, options: Sequence[str]) -> bool:
    """Return whether *word* is one of *options*, with or without a value; short options may be combined."""
    if word.startswith("--"):
        return any(word.partition("=")[0].startswith(option) for option in options if option.startswith("--"))
    letters = re.match(r"-([A-Za-z]*)", word)
    return letters is not None and any(option[1] in letters[1] for option in options if not option.startswith("--"))


def _service_of_url(url: str) -> str:
    """Return the first part of the host name in *url*, which is the service."""
    return (urlsplit(url).hostname or "").split(".", maxsplit=1)[0]
