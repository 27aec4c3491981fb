"""Word alignment of a parallel corpus as a job on the cluster: the verb `data align`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from xalign_ray.errors import ConfigError
from xalign_ray.ray_job import check_lasting
from xalign_ray.status_line import say
from xalign_ray.train.cluster_address import check_named_cluster


def align(
    paths: Sequence[str], form: str, languages: Sequence[str], out: Path, aligner: str = "hmm", method: str = ""
) -> Path:
    """The words of a parallel corpus aligned, as a job on the cluster: `out/alignment.txt` in Pharaoh's form.

    Beside it, of these languages, `out/en-de.frequent.txt`: the words that are aligned most often, for `word_map`.

    Args:
        aligner: a kind by name; `encoder:FOLDER` is a Hugging Face encoder.
        method: how the two directions are joined, grow-diag-final-and if empty.
    """
    check_lasting("--out", out)
    from xalign_ray.config.schema import ParallelConfig, ParallelCorpus
    from xalign_ray.data.word_alignment.corpus import align_corpus
    from xalign_ray.data.word_alignment.frequent import write_frequent_words
    from xalign_ray.data.word_alignment.kinds import named_aligner
    from xalign_ray.data.word_alignment.links import GROW_DIAG_FINAL_AND

    kind = named_aligner(aligner)
    try:
        corpus = ParallelCorpus.model_validate({"format": form, "languages": languages, "paths": paths})
    except ValidationError as error:
        raise ConfigError(f"{error.errors()[0]['loc'][0]}: {error.errors()[0]['msg']}.") from None
    say(f"Aligning words of {', '.join(paths)}.")
    check_named_cluster()
    from xalign_ray.train.driver import connect  # torch and Ray

    connect(ParallelConfig())
    aligned = align_corpus(corpus, out, kind=kind, method=method or GROW_DIAG_FINAL_AND)
    write_frequent_words(corpus, aligned)
    return aligned
