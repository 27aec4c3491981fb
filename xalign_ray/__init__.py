"""xalign-ray: one platform on which the methods that align an encoder's languages are recipes."""

import xalign_ray.report  # noqa: F401 - bound first: once imported, the folder no longer takes the verb's name
from xalign_ray.api import (
    evaluate,
    export,
    load_recipe,
    open_run,
    plan,
    prepare,
    pretrain,
    report,
    study,
    tune,
)
from xalign_ray.opened_run import Run

__version__ = "0.1.0"
__all__ = [
    "Run",
    "evaluate",
    "export",
    "load_recipe",
    "open_run",
    "plan",
    "prepare",
    "pretrain",
    "report",
    "study",
    "tune",
]
