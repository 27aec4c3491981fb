"""Settings of fine-tuning by the name of the paper that has them: what `from` means in a study and in `tune`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from xalign_ray.config.explain import suggest
from xalign_ray.config.yaml_text import parse_yaml

FROM = "from"
_FILE = Path(__file__).with_suffix(".yaml")

Papers = Mapping[str, Mapping[str, Mapping[str, Any]]]


@cache
def read_papers() -> Papers:
    """Settings by paper and task, each with a name and a value as a study may give them."""
    return parse_yaml(_FILE.read_text(encoding="utf-8"))


def resolve_settings(given: Any, task: str) -> Any:
    """The settings that are given, over those of the paper that they name: `ppa`, or `from: ppa` among others.

    Raises:
        ValueError: there is no such paper, or it does not have the task; names what there is.
    """
    settings = {FROM: given} if isinstance(given, str) else given
    if not isinstance(settings, Mapping) or FROM not in settings:
        return given
    paper, papers = settings[FROM], read_papers()
    if paper not in papers:
        raise ValueError(
            f"settings are from '{paper}', which is no paper.{suggest(str(paper), papers)} Known: {', '.join(papers)}"
        )
    if task not in papers[paper]:
        raise ValueError(
            f"{paper} has no settings for {task}, only for {', '.join(papers[paper])}; write them out, or take those "
            "of another paper"
        )
    return {**papers[paper][task], **{name: value for name, value in settings.items() if name != FROM}}
