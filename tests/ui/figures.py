"""Reads the figure of a solver out of what people see: printed tables, pages of boards, reports."""

from __future__ import annotations

import json
import re

FIGURE = re.compile(r"\d+\.\d% \[\d+\.\d, \d+\.\d\]")


def column(text, title, solver, table=""):
    """Return the figure of *solver* under *title* in a printed table, the first behind the line *table*."""
    lines = [re.split("[┃│]", line) for line in text[text.index(table) :].splitlines() if line and line[0] in "┃│"]
    at = next(place for place, cell in enumerate(lines[0]) if cell.strip() == title)
    row = next(line for line in lines if solver in "".join(line[1:3]))
    return FIGURE.search(row[at]).group()


def in_page(page, title, solver):
    """Return the figure of *solver* under *title* on a page of a board."""
    head = re.search(r"<thead>(.*?)</thead>", page, re.DOTALL)[1]
    titles = [cell.strip() for cell in re.findall(r"<th[^>]*>(.*?)</th>", head, re.DOTALL)]
    for row in re.findall(r"<tr.*?</tr>", page[page.index("<tbody>") :], re.DOTALL):
        cells = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        if cells[1].strip().startswith(solver):
            return FIGURE.search(cells[titles.index(title)]).group()
    raise AssertionError(f"{solver} is not on the page")


def in_report(page, title, solver):
    solvers = json.loads(re.search(r'id="payload"[^>]*>(.*?)</script>', page, re.DOTALL)[1])["solvers"]
    row = next(row for row in solvers["rows"] if row[0] == solver)
    return FIGURE.search(row[solvers["columns"].index(f"{title} (n)")]).group()
