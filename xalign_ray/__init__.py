"""xalign-ray: one platform on which the methods that align an encoder's languages are recipes."""

import xalign_ray.report as _package  # imported first: importing it later would overwrite the function `report`
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
from xalign_ray.opened_run import Run

# The function `report` hides the package of that name. With the package's attributes it leads to the submodules too:
# `import xalign_ray.report.compare as compare` looks them up there.
report.__dict__ = vars(_package)

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
