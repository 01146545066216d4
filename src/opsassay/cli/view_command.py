"""opsassay view."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.output import FOLDER, say
from opsassay.core.text import plural

if TYPE_CHECKING:
    from opsassay.ui.browsing.site import StorePages
    from opsassay.ui.browsing.watching import Watcher

_PATH = click.Path(path_type=Path)


@click.command("view")
@click.argument("stores", nargs=-1, required=True, type=_PATH, metavar="STORE...")
@click.option("--cases", type=_PATH, help="Tree with incidents and truth; the runs' own stores when left out.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on this machine; a free one when left out."
)
@click.option(
    "--allow-run", is_flag=True, help="Let the page of jobs end a command that runs; else nothing is changed."
)
@click.option("--export", "out", type=FOLDER, help="Write the pages as files into this new folder, and end.")
@click.pass_context
def command(
    context: click.Context,
    stores: tuple[Path, ...],
    cases: Path | None,
    port: int,
    out: Path | None,
    *,
    allow_run: bool,
) -> None:
    """Show the runs of STORES in the browser, read-only unless --allow-run; with --export write pages as files."""
    from opsassay.core.errors import UserError
    from opsassay.ui.browsing.exporting import export, require_new_folder
    from opsassay.ui.browsing.site import StorePages
    from opsassay.ui.browsing.systems import watches_of_this_machine
    from opsassay.ui.browsing.verdicts import StoredVerdicts
    from opsassay.ui.browsing.watching import Watcher

    for path in (*stores, *([cases] if cases else ())):
        if not path.is_dir():
            raise UserError(f"There is no folder {path}; give the folder that `opsassay run -o` wrote.")
    if out is not None:
        require_new_folder(out)
    watcher = Watcher(list({path.resolve(): path for path in stores}.values()), say)  # the same store is shown once
    something = watcher.catalogue.runs or cases or any((path / "incidents").is_dir() for path in stores)
    if out is not None and not something:
        raise UserError(f"{', '.join(map(str, stores))} holds no runs and no incidents; make some with `opsassay run`.")
    systems = watches_of_this_machine() if out is None else None
    site = StorePages(
        lambda: watcher.catalogue,
        StoredVerdicts(settled=out is not None),
        cases,
        live=out is None,
        allow_run=allow_run,
        systems=systems,
    )
    if out is None:
        _serve_pages(site, watcher, port)
        return
    count, problems = export(site, out)
    for problem in problems:
        say(f"opsassay: left out: {problem}")
    say(f"opsassay: {plural(count, 'file')}; open {out / 'index.html'}")
    context.exit(1 if problems else 0)


def _serve_pages(site: StorePages, watcher: Watcher, port: int) -> None:
    """Serve the pages of *site* on *port* until Ctrl-C; *watcher* meanwhile follows the store's files."""
    from opsassay.ui.browsing.app import view_app
    from opsassay.ui.loopback import serve_on_loopback

    watcher.start()
    try:
        app = view_app(site, watcher)
        serve_on_loopback(app, port, lambda at: say(f"opsassay: {at} (Ctrl-C ends)"), watcher.close)
    finally:
        watcher.close()
        if site.systems is not None:
            site.systems.close()
