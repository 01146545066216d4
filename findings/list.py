#!/usr/bin/env python3
"""Write README.md from the headers of the scripts beside this file; with --check, fail where it is stale.

A header is a run of comment lines at the top of a script: `# Field: text`, continued by lines that begin with `#   `.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIELDS = ("Package", "Version", "Date", "Happens", "Guessed", "Matters")
OPTIONAL = ("Needs",)
INTRODUCTION = """# Findings

What nobody could know from memory, met while we worked: a surprise of a real library, tool or format. Each script makes a
temporary folder, installs the named version there, runs it without OpsAssay on valid input, and prints what it sees. It
exits with an error if the behaviour changes. They need bash, Python 3.11 or newer and a package index, take up to three
minutes, mostly to install, and are outside CI by design.

```console
$ bash findings/{example}
```

`python3 findings/list.py` writes this page from the headers of the scripts, which also say what one would guess and why it
matters.

| script | package and version | what happens |
| --- | --- | --- |
"""


class HeaderError(ValueError):
    """A script whose header lacks something or has something that it should not have."""


def header(script: Path) -> dict[str, str]:
    """Return the fields of *script*, each as one line."""
    fields: dict[str, str] = {}
    name = ""
    lines = script.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0] != "#!/usr/bin/env bash":
        raise HeaderError(f"{script.name}: the first line is not #!/usr/bin/env bash.")
    for number, line in enumerate(lines[1:], 2):
        if not line.startswith("#"):
            break
        if line.startswith("#   ") and name:
            fields[name] += f" {line[4:].strip()}"
        elif match := re.fullmatch(r"# ([A-Z][a-z]+): (\S.*)", line):
            name = match[1]
            if name in fields or name not in FIELDS + OPTIONAL:
                raise HeaderError(f"{script.name}:{number}: the field {name} is unknown or there twice.")
            fields[name] = match[2].strip()
        else:
            raise HeaderError(f"{script.name}:{number}: neither `# Field: text` nor a continuation by `#   text`.")
    if missing := [field for field in FIELDS if field not in fields]:
        raise HeaderError(f"{script.name}: no {', '.join(missing)} in the header.")
    try:
        date.fromisoformat(fields["Date"])
    except ValueError as error:
        raise HeaderError(f"{script.name}: the date {fields['Date']!r} is none.") from error
    return fields


def readme(folder: Path) -> str:
    """Return the page for the scripts of *folder*."""
    scripts = sorted(folder.glob("*.sh"))
    if not scripts:
        raise HeaderError(f"{folder}: no script.")
    rows = []
    for script in scripts:
        fields = header(script)
        happens = re.sub(r"(?<!\\)\|", r"\\|", fields["Happens"])
        rows.append(f"| [{script.stem}]({script.name}) | {fields['Package']} {fields['Version']} | {happens} |\n")
    return INTRODUCTION.replace("{example}", scripts[0].name) + "".join(rows)


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description="Write README.md from the headers of the scripts.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where README.md is stale")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the scripts are (default: beside this file)")
    given = parser.parse_args(arguments)
    page = given.folder / "README.md"
    try:
        text = readme(given.folder)
    except HeaderError as error:
        print(error, file=sys.stderr)
        return 1
    if not given.check:
        page.write_text(text, encoding="utf-8")
        return 0
    if not page.is_file() or page.read_text(encoding="utf-8") != text:
        print(f"{page} is stale: run python3 findings/list.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
