"""The command `killpoint gallery`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chaos.shell import JsonOption, QuietOption, errors_reported, new_folder, print_json

if TYPE_CHECKING:
    from chaos.gallery.command import Watch


def command(
    only: Annotated[
        list[int] | None, typer.Option(min=1, max=32, metavar="N", help="only the bug with this number; repeatable")
    ] = None,
    bugs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="folder of the planted bugs; otherwise the checkout's own")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="folder for the runs; otherwise one below runs/")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Plant known recovery bugs in real runs, and show what the auditor says of each.

    Exit status: 0 all caught and rightly named and no latent control called invalid, 1 not so, 2 could not.
    """
    with errors_reported():
        from chaos.gallery.command import default_folder, show

        with _watch(quiet) as watch:
            gallery = show(bugs or default_folder(), only or (), new_folder(output, "gallery"), watch)
        if as_json:
            print_json(gallery.to_json())
        else:
            from chaos.gallery.report import render
            from chaos.report import print_results

            print_results(render(gallery))
        raise typer.Exit(gallery.exit_status)


@contextmanager
def _watch(quiet: bool) -> Iterator[Watch]:
    from chaos.gallery.command import Watch

    if quiet:
        yield Watch()
        return
    from chaos.gallery.progress import GalleryProgress

    with GalleryProgress() as progress:
        yield Watch(progress.begin, progress.bug, progress.row)
