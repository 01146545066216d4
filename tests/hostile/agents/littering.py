"""An agent that leaves a workspace full of traps beside a right policy: ``littering.py WORK MARK POLICY`` or, for a class
of tasks with a collector, the files of its folder beside it.

Whoever runs git in WORK, follows a link, opens a FIFO or imports what lies there, makes the file MARK.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

HOOKS = (
    "applypatch-msg", "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge",
    "pre-push", "pre-auto-gc", "post-index-change", "fsmonitor-watchman", "reference-transaction", "post-rewrite",
)  # fmt: skip


def program(path: Path, mark: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {mark}\nexit 0\n")
    path.chmod(0o755)
    return path


def repository(git: Path, mark: str) -> None:
    for folder in ("objects/info", "refs/heads", "hooks", "info", "modules/sub/hooks"):
        (git / folder).mkdir(parents=True, exist_ok=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
        f"\tfsmonitor = touch {mark}; false\n\tsshCommand = touch {mark}\n\tpager = touch {mark}\n\teditor = touch {mark}\n"
        f'[filter "x"]\n\tclean = touch {mark}; cat\n\tsmudge = touch {mark}; cat\n[diff "x"]\n\ttextconv = touch {mark}; cat\n'
        f"\tcommand = touch {mark}\n[diff]\n\texternal = touch {mark}\n[alias]\n\tstatus = !touch {mark}\n"
        f'[submodule "sub"]\n\turl = ext::touch {mark}\n\tupdate = !touch {mark}\n[include]\n\tpath = /etc/passwd\n'
    )
    for name in HOOKS:
        program(git / "hooks" / name, mark)
        program(git / "modules/sub/hooks" / name, mark)
    (git / "objects/info/alternates").write_text("/root/.git/objects\n/proc/self/root\n")
    (git / "info/attributes").write_text("* filter=x diff=x\n")


def main() -> None:
    work, mark = Path(sys.argv[1]), sys.argv[2]
    for source in Path(__file__).parent.glob("*.yaml"):
        (work / "policies").mkdir(exist_ok=True)
        shutil.copy(source, work / "policies" / source.name)
    with suppress(OSError):
        shutil.rmtree(work / ".git")
    repository(work / ".git", mark)
    repository(work / "bare", mark)
    (work / ".gitattributes").write_text("* filter=x diff=x\n")
    (work / ".gitmodules").write_text(
        f'[submodule "sub"]\n\tpath = sub\n\turl = ext::touch {mark}\n\tupdate = !touch {mark}\n'
    )
    (work / "sub").mkdir()
    (work / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    os.symlink("/etc", work / "linked")
    os.symlink("/etc/passwd", work / "policies/linked.txt")
    os.link(work / "policies/mine.yaml", work / "policies/hard.txt")
    os.mkfifo(work / "policies/pipe")
    os.mkfifo(work / "pipe.yaml")
    for name in (b"a\nb", b"\xff\xfe", b"-rf", b"\x1b[2J", b"..x", b"x" * 255, b" ", "\u202egpj".encode()):
        (work / os.fsdecode(name)).write_text("x")
    for name in ("sitecustomize.py", "conftest.py", "opsassay.py", "yaml.py", "setup.py", "usercustomize.py"):
        (work / name).write_text(f"open({mark!r}, 'w')\n")
    program(work / "kubectl", mark)
    program(work / "git", mark)
    deep = work / "deep"
    for _ in range(40):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (work / "closed").mkdir()
    (work / "closed").chmod(stat.S_IXUSR)


if __name__ == "__main__":
    main()
