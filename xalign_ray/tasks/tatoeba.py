"""Tatoeba: retrieval of translations by the nearest sentence vector, in both directions, at every layer.

Formulas, and how the papers were read: docs/explanation/methods.md, Evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_ray.config.language_codes import check_language
from xalign_ray.errors import DataError
from xalign_ray.models.nearest import Vectors
from xalign_ray.tasks.scores import Score, average_languages
from xalign_ray.tasks.task import COSINE, ENGLISH, Measure, Metric, Task
from xalign_ray.tasks.task_files import choose_languages, name_language, read_lines
from xalign_ray.tasks.translations import LAST_LAYERS, MEAN_OF_LAST, headline, layer_accuracies, layer_cosines
from xalign_ray.work.artifacts import hash_file, hash_value
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.tasks.hf_encoder import Encoder

_NAME = re.compile(r"tatoeba\.(?P<other>.+)-(?P<english>eng|en)\.(?P<end>.+)")
_TITLE = "Sentence retrieval (Tatoeba)"
PairPaths = tuple[Path, Path]  # line i of the first translates line i of the second, which is English


class TatoebaTask(Task):
    """Accuracy of retrieving translations, per language and layer, and the mean over languages.

    Vectors are means over real tokens. `tatoeba_accuracy` asks each sentence of language xx and is right if its own
    English side is the nearest by cosine among the English sides of the same pair of files, as mteb does.
    `tatoeba_accuracy_from_english` asks the English sentences, as XTREME's code does and so the tables of DICT-MLM.
    The headline of an encoder with Sentence Transformers files is layer "last", by the pooling that they name; of any
    other it is layer "last4", the mean accuracy of the last min(4, n) layers (DICT-MLM, Table 1). Chance is
    1 / number of pairs. `tatoeba_accuracy_csls` is `tatoeba_accuracy` by CSLS; `tatoeba_accuracy_cls` is it by cosine
    of the first token of each layer but the embedding layer, where all first tokens are equal. Beside them the mean
    cosine of translations and, as `pair_cosine_random`, of each sentence with the translation of the next one.

    Its data is a folder of `tatoeba.<xx>-eng.<xx>` and `tatoeba.<xx>-eng.eng` (LASER), or the same with 2-letter codes,
    of any parallel text; scores name the folder as their split.
    """

    name = "tatoeba"
    metrics = (
        Metric("tatoeba_accuracy", _TITLE, "nearest-neighbour retrieval of the English translation"),
        Metric(
            "tatoeba_accuracy_from_english", f"{_TITLE}, from English",
            "nearest-neighbour retrieval of the translation of an English sentence, as XTREME",
        ),
        Metric("tatoeba_accuracy_csls", f"{_TITLE}, CSLS", "retrieval of the English translation by CSLS"),
        Metric(
            "tatoeba_accuracy_cls", f"{_TITLE}, first token",
            "retrieval of the English translation by cosine of the first token of each layer",
        ),
        Metric(
            "pair_cosine", "Mean cosine of translations", "mean cosine of translated sentences, last layers",
            COSINE, higher_is_better=None,
        ),
        Metric(
            "pair_cosine_random", "Mean cosine of other sentences",
            "the same of sentences that do not translate each other", COSINE, higher_is_better=None,
        ),
    )  # fmt: skip

    def check_data(self, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:
        """Reads all pairs of files."""
        pairs = find_pairs(data, languages)
        for paths in pairs.values():
            read_pair(paths)
        return [ENGLISH, *pairs]

    def evaluate(
        self, encoder: str, data: Path | None, languages: Sequence[str] | None = None, device: str = "auto"
    ) -> list[Score]:
        from xalign_ray.models.sentence_encoder import steps_behind_pooling
        from xalign_ray.models.sentence_modules import own_pooling
        from xalign_ray.tasks.hf_encoder import Encoder, apply_steps

        assert data is not None
        pairs = find_pairs(data, languages)
        opened = Encoder.open(encoder, device)
        opened.inputs.check_languages([ENGLISH, *pairs])
        own = own_pooling(encoder)
        steps = steps_behind_pooling(encoder, opened.model.device)
        rule = f"last layer, {own} pooling, as the encoder's own files say" if own else MEAN_OF_LAST
        say(f"Headline of retrieval: {rule}.")
        split = data.resolve().name  # several such folders can be scored beside each other
        scores = [
            score
            for language, paths in pairs.items()
            for score in self._score_pair(
                opened, paths, language, split, own, lambda vectors: apply_steps(steps, vectors, opened.model.device)
            )
        ]
        return scores + average_languages(scores)

    def _score_pair(
        self,
        encoder: Encoder,
        paths: PairPaths,
        language: str,
        split: str,
        own: str | None,
        behind: Callable[[Vectors], Vectors],
    ) -> Iterator[Score]:
        other, english = read_pair(paths)
        left, right = (encoder.pool(*texts, ("mean", "cls")) for texts in ((other, language), (english, ENGLISH)))
        test_set = hash_value([*map(hash_file, paths)])
        device = str(encoder.model.device)
        curves = layer_scores(left["mean"], right["mean"], device)
        headlines = curves
        if own:
            headlines = layer_scores(*(behind(side[own][-1])[None] for side in (left, right)), device=device)
        last = "last" if own else f"last{LAST_LAYERS}"
        first_token = dict(enumerate(layer_accuracies(left["cls"], right["cls"], device=device)))
        del first_token[0]
        found = [(metric, {last: headline(values, bool(own))}, own or "mean") for metric, values in headlines.items()]
        found += [(metric, dict(enumerate(curves[metric])), "mean") for metric in curves if "cosine" not in metric]
        found += [("tatoeba_accuracy_cls", first_token, "cls")]
        for metric, layers, pooling in found:
            for layer, value in layers.items():
                measure = Measure(value, None if "cosine" in metric else 1 / len(other), len(other))
                where = {"layer": layer, "pooling": pooling, "test_set": test_set}
                yield self.score_of(encoder, split, language, metric, measure, **where)


def find_pairs(data: Path, languages: Sequence[str] | None = None) -> dict[str, PairPaths]:
    """The pairs of files in a folder, by the language that is not English, of these languages or of all that are there.

    Raises:
        DataError: there are none, or none of a language that was asked for.
    """
    names = [_NAME.fullmatch(path.name) for path in sorted(data.glob("tatoeba.*"))]
    stems = sorted({(name["other"], name["english"]) for name in names if name})
    if not stems:
        of_xtreme = any(data.glob("*-en.en"))
        hint = " XTREME's copies, de-en.de and de-en.en, have their English lines sorted: take LASER's." * of_xtreme
        raise DataError(
            f"{data} holds no Tatoeba files; they are called tatoeba.deu-eng.deu and tatoeba.deu-eng.eng.{hint}"
        )
    pairs, codes = {}, {other for other, _ in stems}
    for other, english in stems:
        stem = data / f"tatoeba.{other}-{english}"
        language = name_language(other, stem)
        if len(other) == len(language) and language in codes:
            language = other  # LASER has kzj beside dtp, into which ISO 639 has merged it since
        if language in pairs:
            raise DataError(f"{data} holds {language} twice, also as {stem.name}; keep one.")
        pairs[language] = Path(f"{stem}.{other}"), Path(f"{stem}.{english}")
    chosen = choose_languages(pairs, languages, data, lambda code: code if code in pairs else check_language(code))
    return {language: pairs[language] for language in chosen}


def read_pair(paths: PairPaths) -> tuple[list[str], list[str]]:
    """The sentences of a language and their English translations, equally many.

    Raises:
        DataError: a side is missing or empty, the sides differ in length, or a line is empty.
    """
    other, english = map(read_lines, paths)
    if len(other) != len(english) or not other:
        raise DataError(
            f"{paths[0]} has {len(other)} lines and {paths[1]} has {len(english)}; line i of one must "
            "translate line i of the other."
        )
    for path, lines in zip(paths, (other, english), strict=True):
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise DataError(f"{path}, line {number} is empty; remove that line from both sides of the pair.")
    return other, english


def layer_scores(other: Vectors, english: Vectors, device: str) -> dict[str, list[float]]:
    """What is scored at each layer, by metric; both are `[layers, N, D]`."""
    return {
        "tatoeba_accuracy": layer_accuracies(other, english, device=device),
        "tatoeba_accuracy_from_english": layer_accuracies(english, other, device=device),
        "tatoeba_accuracy_csls": layer_accuracies(other, english, csls=True, device=device),
        "pair_cosine": layer_cosines(other, english, shift=0),
        "pair_cosine_random": layer_cosines(other, english, shift=1),
    }


TATOEBA = TatoebaTask()
