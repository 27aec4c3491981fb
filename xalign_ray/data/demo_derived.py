"""The three languages derived from the English of the embedded world for tiny recipes: Trans, Trans+Inv, Trans+Syn."""

from __future__ import annotations

from pathlib import Path

from xalign_ray.data.derived_corpus import Derivation, write_derived
from xalign_ray.text.derived import INVERSION, SYNTAX, TRANSLITERATION, derived_language

VOCAB_SIZE = 1000  # English pieces; the world has some 600 words
_CHANGES = ((TRANSLITERATION,), (INVERSION, TRANSLITERATION), (SYNTAX, TRANSLITERATION))
_SPLITS = ("train", "dev", "test")


def write_demo_derived(world: Path, out: Path) -> None:
    """Writes a folder of each language below `out`, as `data derive` does, with its POS, NER and XNLI files.

    Args:
        world: as `write_demo` left it.
        out: is made if it does not exist.
    """
    tasks = {
        "pos": [world / "pos" / f"en.{split}.conllu" for split in _SPLITS],
        "ner": [world / "ner" / f"{split}-en.tsv" for split in _SPLITS],
        "xnli": [world / "xnli" / name for name in ("multinli.train.en.tsv", "dev-en.tsv", "test-en.tsv")],
    }
    for changes in _CHANGES:
        treebanks = [world / "pos" / "qge.train.conllu"] if SYNTAX in changes else []
        how = Derivation(changes, VOCAB_SIZE)
        folder = out / derived_language(changes)
        write_derived([f"conllu:{world / 'trees' / 'en.conllu'}"], folder, how, treebanks, **tasks)
