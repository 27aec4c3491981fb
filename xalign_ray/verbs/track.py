"""The verbs of the group `track`: MLflow, after the fact."""

from __future__ import annotations

from typing import Annotated

import typer

from xalign_ray.verbs.arguments import RunFolder, as_path
from xalign_ray.work.local_paths import shown_path
from xalign_ray.work.status_line import say, say_next


def track_replay(
    run: RunFolder,
    to: Annotated[str, typer.Option(metavar="URI", help="a tracking URI")],
    experiment: Annotated[str, typer.Option(metavar="NAME", help="of MLflow's experiment")] = "xalign",
) -> list[str]:
    """Bring MLflow up to date with a run folder. Doing it again adds nothing."""
    from xalign_ray.config.explain import check_folder
    from xalign_ray.track.follower import open_command, replay, resolve_uri, runs_page
    from xalign_ray.work.mirror import opened

    folder = opened(as_path(run))
    check_folder(folder)
    uri = resolve_uri(to, folder.parent)
    say(f"Bringing {shown_path(folder)} to MLflow at {uri}.")
    ids = replay(folder, uri, experiment)
    say_next(open_command(uri, runs_page(uri, experiment)))
    return ids
