"""xalign-ray: one platform on which the methods that align an encoder's languages are recipes."""

from xalign_ray.api import (
    continue_encoder,
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
from xalign_ray.verbs.opened_run import Run

__version__ = "0.1.0"
__all__ = [
    "Run",
    "continue_encoder",
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
