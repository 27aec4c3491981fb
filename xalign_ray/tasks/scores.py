"""The score record: what every evaluation yields, and the scores.json it is kept in."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import hash_value, read_records, write_records
from xalign_ray.work.run_folder import SCORES as SCORES  # the name of the file, for those who read or write it

NARROWEST = 20  # columns that lines are made for, in whatever terminal
ALL_LANGUAGES = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One number, and everything needed to read it. Facts of origin that an encoder's folder lacks are None.

    Attributes:
        run: name of the pretraining run, as its folder is called.
        encoder: the folder or hub id that was opened; for a fine-tuned folder, the encoder that it was tuned from.
        objective: the pretraining recipe's objectives, such as "mlm".
        task: name in the registry.
        split: a split of the data, or a file's name.
        language: the tested language, a pair such as "en-de", or "all" for the mean over languages.
        layer: 0 is the embedding layer's output, n the last layer's; "last4", "embedding_table"; None where it has no
            meaning.
        pooling: how pieces became one vector, None where nothing was pooled.
        value: in [0, 1] for accuracies, [-1, 1] for cosines, above 0 for premiums.
        chance: what guessing without the encoder would reach, None where there is no such thing.
        n: number of things scored: pairs, words, tokens.
        seed: of fine-tuning where there was one, else of pretraining.
        step: the pretraining step that was exported.
        test_set: hash of the scored data, which distinguishes test sets of one name; None where it is not known.
        vectors: how a sentence became a vector, in words; None where no sentence did, or it is not known.
    """

    run: str | None
    encoder: str
    objective: str | None
    task: str
    split: str
    language: str
    layer: int | str | None = None
    pooling: str | None = None
    metric: str
    value: float
    chance: float | None
    n: int
    seed: int | None
    step: int | None
    test_set: str | None = None
    vectors: str | None = None

    @property
    def averaged_with(self) -> tuple[object, ...]:
        """Common key of the scores whose languages are averaged."""
        return self.metric, self.split, self.layer, self.pooling

    def __post_init__(self) -> None:
        from xalign_ray.tasks.registry import METRICS, load_task  # here, because tasks are built on scores

        if self.metric in METRICS:
            return
        try:
            load_task(self.task)
        except ValueError as error:
            raise DataError(
                f"The scores of {self.run or self.encoder} are of the task {self.task}, a module of somebody's own, "
                f"which cannot be read here: {error}."
            ) from None
        assert self.metric in METRICS, f"{self.metric} is not a known metric"


def origin_of(config: Mapping[str, Any], encoder: str) -> dict[str, Any]:
    """The facts of origin of an encoder's scores, by the config.json of exports and fine-tuned folders.

    Args:
        encoder: its name, where the config has no other.
    """
    recipe, fingerprint = config.get("xalign_recipe"), config.get("xalign_fingerprint")
    return {
        "run": f"{recipe.replace('/', '-')}-{fingerprint[:8]}" if recipe and fingerprint else None,
        "encoder": config.get("xalign_encoder") or encoder,
        "objective": config.get("xalign_objective"),
        "seed": config.get("xalign_tune_seed", config.get("xalign_seed")),
        "step": config.get("xalign_step"),
    }


def average_languages(scores: Iterable[Score]) -> list[Score]:
    """For each (metric, split, layer, pooling) the plain mean over languages, as a further score "all".

    Every language weighs the same, however many things were scored in it (XTREME); `n` is the sum.
    """
    groups: dict[tuple[object, ...], list[Score]] = {}
    for score in scores:
        groups.setdefault(score.averaged_with, []).append(score)
    return [_mean(group) for group in groups.values()]


def show_scores(scores: Sequence[Score], width: int) -> Iterator[str]:
    """A line for each mean over languages, and below it each language's score; none of single layers."""
    for mean in scores:
        if mean.language != ALL_LANGUAGES or isinstance(mean.layer, int):
            continue
        chance = "" if mean.chance is None else f"  (chance {mean.chance:.3f})"
        layer = "" if mean.layer is None else f"  layer {mean.layer}"
        yield f"{mean.metric} {mean.value:.3f}{chance}{layer}  {mean.split}  n {mean.n}"
        of_languages = [
            f"{score.language}\u00a0{score.value:.3f}"
            for score in scores
            if score.language != ALL_LANGUAGES and score.averaged_with == mean.averaged_with
        ]
        if of_languages:
            for line in textwrap.wrap("  ".join(of_languages), max(width, NARROWEST) - 2):
                yield f"  {line}".replace("\u00a0", " ")


def _mean(group: Sequence[Score]) -> Score:
    from xalign_ray.results.aggregate import over_languages  # here: pandas costs every importer half a second

    chances = [score.chance for score in group if score.chance is not None]
    hashes = [score.test_set for score in group]
    return replace(
        group[0],
        language=ALL_LANGUAGES,
        value=float(over_languages([score.value for score in group])),
        chance=float(over_languages(chances)) if chances else None,
        n=sum(score.n for score in group),
        test_set=None if None in hashes else hash_value(hashes),
    )


def write_scores(path: Path, scores: Iterable[Score]) -> None:
    """Writes scores.json atomically, every record with all keys (the last two where they are known), and their hash."""
    records = [asdict(score) for score in scores]
    for record in records:
        for name in ("test_set", "vectors"):
            if record[name] is None:
                del record[name]
    write_records(path, records)


def are_whole(path: Path) -> bool:
    """Whether a scores.json is there and can be read: an evaluation that need not be done again."""
    try:
        return bool(read_scores(path))
    except DataError:
        return False


def read_scores(path: Path) -> list[Score]:
    """The scores of a scores.json.

    Raises:
        DataError: the file is missing, is not one that `write_scores` wrote, or was changed since.
    """
    try:
        return [Score(**record) for record in read_records(path)]
    except (TypeError, AssertionError) as error:
        raise DataError(f"{path} is not a file of scores ({error}); delete it and evaluate again.") from error
