"""A small encoder of English pieces, beside data of two languages: what tests of new vocabularies begin with."""

from __future__ import annotations

from pathlib import Path

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.models.export import export
from xalign_ray.train.loop import build_model

SMALL = [
    "model.num_hidden_layers=1",
    "model.hidden_size=16",
    "model.num_attention_heads=2",
    "model.intermediate_size=32",
    "model.hidden_dropout_prob=0.0",
    "streams=[{kind: masked_text}]",
    "train.max_steps=3",
    "train.eval_steps=0",
    "parallel.workers=1",
]
FACTS = {"recipe": "test", "fingerprint": "ab" * 32}
_LETTERS = str.maketrans("0123456789", "abcdefghij")


def write_english_base(folder: Path) -> None:
    """Writes the inputs, whose words have letters for digits, and the encoder as the folder `base`."""
    write_inputs(folder)
    for path in folder.glob("*.*"):
        path.write_text(path.read_text().translate(_LETTERS))
    english = make_config(folder, "data.corpora=[{format: text, language: en, paths: [en.txt]}]", "data.parallel=[]",
                          "data.dictionaries=[]", *SMALL)  # fmt: skip
    prepared = prepare_here(english)
    export(build_model(english, prepared).state_dict(), english, prepared, folder / "base", FACTS | {"step": 0})
