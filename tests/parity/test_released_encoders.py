"""Released encoders: a run of no steps gives back their weights, their token ids and their sentence vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.models.export import export
from xalign_ray.train.loop import build_model

pytestmark = pytest.mark.models

FACTS = {"recipe": "continue/contrast", "fingerprint": "ab" * 32, "step": 0}
CONTRAST = ["streams=[{kind: contrasted_pairs, text: none}]", "objectives=[{kind: sentence_contrast}]"]
TEXTS = [
    "The cat sees a dog.",
    "Die Katze sieht einen Hund, oder?",
    "Tôi thích đọc sách.",
    "猫が犬を見ている。",
    "a b " * 300,
]


@pytest.fixture(scope="module", params=["minilm", "e5-small"])
def folders(
    request: pytest.FixtureRequest, released_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A released folder, and what a run by contrast makes of it before its first step."""
    base, root = released_models / request.param, tmp_path_factory.mktemp(request.param)
    write_inputs(root)
    given = [f"model.init_from={base}", f"data.tokenizer={{kind: folder, path: {base}}}"]
    config = make_config(root, *CONTRAST, *given)
    prepared = prepare_here(config)
    export(build_model(config, prepared).state_dict(), config, prepared, root / "export", FACTS)
    return base, root / "export"


def test_no_step_changes_no_weight(folders: tuple[Path, Path]) -> None:
    base, exported = (load_file(folder / "model.safetensors") for folder in folders)
    lacking = base.keys() - exported.keys()
    assert lacking <= {"embeddings.position_ids"}, "numbers that transformers counts by itself"
    assert [name for name in base.keys() - lacking if not torch.equal(base[name].float(), exported[name])] == []
    assert exported.keys() <= base.keys()


def test_no_step_changes_no_vector_in_transformers(folders: tuple[Path, Path]) -> None:
    states = []
    for folder in folders:
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).float().eval()
        given = [tokenizer(text, truncation=True, return_tensors="pt") for text in TEXTS]
        with torch.no_grad():
            states.append([model(**inputs).last_hidden_state[0].numpy() for inputs in given])
    for before, after in zip(*states, strict=True):
        np.testing.assert_allclose(after, before, atol=1e-5)


def test_no_step_changes_no_vector_in_sentence_transformers(folders: tuple[Path, Path]) -> None:
    from sentence_transformers import SentenceTransformer

    if not (folders[0] / "modules.json").is_file():
        assert not (folders[1] / "modules.json").exists()
        return
    base, exported = (SentenceTransformer(str(folder), device="cpu") for folder in folders)
    assert [type(module) for module in base] == [type(module) for module in exported]
    assert exported.max_seq_length == base.max_seq_length == 256
    np.testing.assert_allclose(exported.encode(TEXTS), base.encode(TEXTS), atol=1e-5)
