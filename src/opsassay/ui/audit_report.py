"""Writes the report of an audit: report.html, report.md, figures as SVG, and the tables of `analysis.audit.export`."""

from __future__ import annotations

import re
from pathlib import Path

from opsassay.analysis.audit.audit import AuditReport
from opsassay.analysis.audit.export import TABLES, write_tables
from opsassay.ui.audit_figures import figures
from opsassay.ui.audit_parts import AuditTable, Section
from opsassay.ui.audit_view import sections
from opsassay.ui.page import asset, render, write_whole
from opsassay.ui.plain import plain


def write_audit(
    audit: AuditReport, folder: Path, *, title: str = "Which scores may be trusted for which system"
) -> list[Path]:
    """Write the whole report of *audit* into *folder* and return its files, report.html last.

    Each file is replaced as a whole, and equal audits give equal bytes. Tables and figures of an earlier report that the
    new one lacks are removed. Raises OperationError.
    """
    style = _figure_style()
    written = write_tables(audit, folder)
    for of_kind in figures(audit).values():
        written += [write_whole(folder / "figures" / f"{f.name}.svg", f.standalone(style)) for f in of_kind]
    parts = sections(audit)
    _remove_leftovers(folder, written)
    written.append(write_whole(folder / "report.md", render_markdown(audit, parts, title)))
    written.append(write_whole(folder / "report.html", render_html(audit, parts, title)))
    return written


def _remove_leftovers(folder: Path, paths: list[Path]) -> None:
    """Remove tables and figures of an earlier report in *folder* that are not among *paths*."""
    names = {*(f"{table}.{suffix}" for table in TABLES for suffix in ("csv", "json"))}
    for path in ((folder / name) for name in ("tables", "figures")):
        for file in path.iterdir():
            ours = file.name in names if path.name == "tables" else re.fullmatch(r"(forest|regret)-\d+\.svg", file.name)
            if ours and file not in paths:
                file.unlink()


def render_html(audit: AuditReport, parts: list[Section], title: str) -> str:
    """Return the report of *parts* as an HTML page without scripts and network requests; styles are allowed by hash."""
    return render("audit.html", title, view={"claim": audit.claim, "parts": parts})


def render_markdown(audit: AuditReport, parts: list[Section], title: str) -> str:
    """Return *audit* as Markdown: *title*, claim, and *parts* with links to the figures' files."""
    lines = [f"# {_escape_markdown(title)}", "", f"> {_escape_markdown(audit.claim)}", ""]
    for part in parts:
        lines += [f"## {part.title}", ""]
        for words in (*part.words, *part.notes):
            lines += [_escape_markdown(words), ""]
        for figure in part.figures:
            lines += [f"![{_escape_markdown(figure.title)}](figures/{figure.name}.svg)", ""]
        for table in part.tables:
            lines += _format_markdown_table(table)
    return "\n".join(lines).rstrip() + "\n"


def _format_markdown_table(table: AuditTable) -> list[str]:
    """Return the lines of the table in Markdown, numeric columns aligned to the right."""
    rule = ["--:" if i in table.numeric else "---" for i in range(len(table.columns))]
    rows = [table.columns, rule, *table.rows]
    lines = [
        f"**{table.caption}**",
        "",
        *("| " + " | ".join(_escape_markdown(cell) for cell in row) + " |" for row in rows),
        "",
    ]
    return lines + ([table.note, ""] if table.note else [])


def _escape_markdown(words: str) -> str:
    """Return *words* on one line with all Markdown and HTML markup escaped."""
    line = plain(words).replace("\n", " ").replace("\t", " ")
    for character in "\\|`<>[]*_":
        line = line.replace(
            character, f"\\{character}" if character not in "<>" else {"<": "&lt;", ">": "&gt;"}[character]
        )
    return line


def _figure_style() -> str:
    """Return the CSS colours and drawing rules for SVG files that stand alone."""
    style = asset("static/style.css")
    drawings = style[style.index("/* Drawings") : style.index("/* Traces")]
    return style[: style.index("* { box-sizing")] + drawings
