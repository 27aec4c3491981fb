"""Word alignment of a parallel corpus as a job on the cluster: the verb `data align`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from xalign_ray.config.absolute import absolute_aligner
from xalign_ray.config.mistakes import sentence_on
from xalign_ray.errors import ConfigError
from xalign_ray.train.cluster_address import check_named_cluster
from xalign_ray.work.ray_job import check_lasting
from xalign_ray.work.status_line import say


def align(
    paths: Sequence[str],
    form: str,
    languages: Sequence[str],
    out: Path,
    aligner: str = "hmm",
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """The words of a parallel corpus aligned, as a job on the cluster: `out/alignment.txt` in Pharaoh's form.

    Beside it, of these languages, `out/en-de.frequent.txt`: the words that are aligned most often, for `word_map`.

    Args:
        aligner: a kind by name; `encoder:FOLDER` is a Hugging Face encoder.
        settings: keys of a recipe's `data.word_alignment`, such as `{"join": "union", "train_pairs": None}`.
    """
    check_lasting("--out", out)
    aligner = absolute_aligner(aligner)
    from xalign_ray.config.aligners import WordAlignment
    from xalign_ray.config.schema import ParallelConfig, ParallelCorpus
    from xalign_ray.data.word_alignment.corpus import align_corpus
    from xalign_ray.data.word_alignment.frequent import write_frequent_words
    from xalign_ray.data.word_alignment.kinds import check_method, named_aligner

    try:
        corpus = ParallelCorpus.model_validate({"format": form, "languages": languages, "paths": paths})
        chosen = WordAlignment.model_validate(settings or {})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{sentence_on(str(first['loc'][0]), first)}.") from None
    if fault := chosen.fault([aligner]):
        raise ConfigError(f"{fault}.")
    kind = named_aligner(aligner, corpus.languages, chosen)
    check_method(kind, chosen.join or kind.default_method)
    say(f"Aligning words of {', '.join(paths)}.")
    check_named_cluster()
    from xalign_ray.train.driver import connect  # torch and Ray

    connect(ParallelConfig())
    aligned = align_corpus(corpus, out, kind=kind, settings=chosen)
    write_frequent_words(corpus, aligned)
    return aligned
