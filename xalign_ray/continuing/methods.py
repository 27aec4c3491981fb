"""Methods of `xalign continue`: which recipe below `continue/` trains an encoder on the given data, and refusals."""

from __future__ import annotations

from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.errors import ConfigError
from xalign_ray.models.backbone import encoder_values
from xalign_ray.models.families import family_of
from xalign_ray.models.open import Opened, open_encoder
from xalign_ray.models.refusals import check_encoder_files

REPLAY = 0.1  # share of rows that are text, where text is given beside pairs
NEW_HEAD = ", or --set allow=[new_head], which trains one from random weights and harms the encoder at first"
NEEDS = {  # of each method, in the order in which they are checked; see `_missing`
    "contrast": ["pairs"],
    "contrast-tlm": ["pairs", "head"],
    "add": ["pairs"],
    "distill": ["pairs", "teacher"],
    "align": ["dictionary", "sentences", "repulsion"],
    "weam": ["pairs", "head"],
    "ppa": ["pairs"],
    "mlm": ["text", "head"],
}
WITHOUT_HEAD = {
    "align": ("align-contrast", "; the encoder has no masked-LM head, so contrast trains beside the dictionary"),
    "ppa": ("ppa-no-tlm", "; the encoder has no masked-LM head, so without TLM"),
}


def look_at_encoder(name: str) -> Opened:
    """Reads an encoder's small files.

    Raises:
        ConfigError: its family or its files cannot be continued.
        DataError: there is no such encoder, or its files are damaged.
    """
    encoder_values(name)  # refuses a folder that is not there before any request to the hub
    encoder = open_encoder(name)
    check_encoder_files(encoder)
    family_of(name, encoder.config)
    return encoder


def trains_head(lines: FiveLines, encoder: Opened) -> bool:
    """Whether masked LM can be trained: the encoder has a head, or `--set allow=[new_head]` gives it a new one."""
    new_head = any(setting.startswith("allow=") and "new_head" in setting for setting in lines.set)
    return encoder.has_head or (new_head and not family_of(encoder.name, encoder.config).no_masked_lm)


def choose(lines: FiveLines, encoder: Opened) -> tuple[str, str]:
    """The recipe of a method below `continue/`, and the reason as a sentence.

    Raises:
        ConfigError: the data or the encoder do not allow the method.
    """
    method, has_head = lines.method, trains_head(lines, encoder)
    if lines.teacher and method not in ("distill", "add"):
        raise ConfigError(f"--teacher is for --method distill and add, and the method is {method}.")
    if method != "auto":
        if missing := _missing(method, lines, encoder):
            raise ConfigError(f"--method {method}: {missing}")
        recipe, change = WITHOUT_HEAD.get(method, (method, "")) if not has_head else (method, "")
        return recipe, f"Method {method}, as asked for{change}."
    if lines.pairs:
        method = "contrast-tlm" if has_head else "contrast"
        reason = f"pairs, and an encoder {'with' if has_head else 'without'} a masked-LM head"
    elif lines.dictionary or lines.text:
        method, reason = ("align", "a dictionary without pairs") if lines.dictionary else ("mlm", "text alone")
    else:
        raise ConfigError("There is nothing to train on: give --pairs FILE, --dictionary FILE or --text FILE.")
    if missing := _missing(method, lines, encoder):
        raise ConfigError(f"--method auto takes {method} of {reason}, but {missing}")
    return method, f"Method {method}: {reason}."


def _missing(method: str, lines: FiveLines, encoder: Opened) -> str:
    """The first need of a method that is not met, with the option that meets it; empty if all are."""
    has_head, no_masked_lm = trains_head(lines, encoder), family_of(encoder.name, encoder.config).no_masked_lm
    no_head = f"{encoder.name} {no_masked_lm or 'has no masked-LM head'}"
    instead = f"take --method contrast{'' if lines.pairs else ' with --pairs FILE'}"
    needs = {
        "pairs": (lines.pairs, "it needs sentence pairs: add --pairs FILE."),
        "text": (lines.text, "it needs text: add --text FILE."),
        "teacher": (lines.teacher, "it learns another encoder's sentence vectors: add --teacher FOLDER."),
        "dictionary": (lines.dictionary, "it draws the words of a dictionary together: add --dictionary FILE."),
        "head": (
            has_head,
            f"it predicts masked words, and {no_head}: {instead}{'' if no_masked_lm else NEW_HEAD}.",
        ),
        "sentences": (
            lines.pairs or lines.text or not has_head,
            "it needs sentences to predict words in: add --text FILE or --pairs FILE.",
        ),
        "repulsion": (
            lines.pairs or has_head,
            f"{no_head}, and the dictionary alone would draw all words together: add --pairs FILE.",
        ),
    }
    return next((message for has, message in (needs[need] for need in NEEDS[method]) if not has), "")


def check_replay(lines: FiveLines, encoder: Opened, recipe: str) -> float:
    """The share of rows that are monolingual text, for masked LM.

    Raises:
        ConfigError: the share that the user gives cannot be trained.
    """
    is_text_itself = recipe == "mlm" or (recipe == "align" and lines.text)
    if is_text_itself or lines.replay == 0:
        return 0.0
    if lines.replay is None:
        return REPLAY if lines.text and trains_head(lines, encoder) else 0.0
    if not lines.text:
        raise ConfigError(f"--replay {lines.replay:g} mixes text of the encoder's own kind in: add --text FILE.")
    if not trains_head(lines, encoder):
        raise ConfigError(
            f"--replay {lines.replay:g} is masked LM on text, and {encoder.name} has no masked-LM head, so it learns "
            "nothing from text. To keep a language, add sentence pairs in it (one more --pairs FILE); --keep FILE "
            "shows whether it was kept."
        )
    return lines.replay
