"""Sentence Transformers files of an encoder: prompts, pooling and modules as read, and what cannot be continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xalign_ray.errors import DataError
from xalign_ray.models.sentence_files import SentenceFiles, read_sentence_files

PROMPTS = "config_sentence_transformers.json"


def files_of(folder: Path, *modules: str, **contents: Any) -> SentenceFiles:
    """The files of a folder: of modules behind its Transformer, and JSON by the beginning of its file's name."""
    listed = [{"path": str(place) if place else "", "type": kind} for place, kind in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(listed))
    names = {"pooling": "1/config.json", "prompts": PROMPTS, "modules": "modules.json"}
    for key, content in contents.items():
        (path := folder / names[key]).parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_sentence_files(str(folder))


@pytest.mark.parametrize(
    ("config", "prompt"),
    [
        ({"prompts": {"query": "q: ", "passage": "p: "}}, "q: "),
        ({"prompts": {"query": "q: ", "sts": "s: "}, "default_prompt_name": "sts"}, "s: "),
        ({"prompts": {"query": "", "document": ""}, "default_prompt_name": None}, ""),
        ({"prompts": {"clustering": "c: "}}, ""),
        ({}, ""),
    ],
)
def test_default_prompt_else_that_of_queries(tmp_path: Path, config: dict, prompt: str) -> None:
    assert files_of(tmp_path, prompts=config).prompt == prompt


@pytest.mark.parametrize(
    ("pooling", "named", "trained"),
    [
        ({}, "mean", "mean"),  # the package's own default
        ({"word_embedding_dimension": 16, "pooling_mode_cls_token": True}, "cls", "cls"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean + max", None),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len_tokens", None),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "lasttoken", "lasttoken"),
        ({"pooling_mode": "max"}, "max", None),
        ({"pooling_mode": ["mean", "cls"]}, "mean + cls", None),
    ],
)
def test_one_of_three_poolings_is_continued(tmp_path: Path, pooling: dict, named: str, trained: str | None) -> None:
    files = files_of(tmp_path, "x.Transformer", "x.Pooling", "x.Normalize", pooling=pooling)
    assert (files.rule.pooling, files.rule.is_own, files.pooling) == (named, True, trained)
    if trained:
        files.check_trained()
        return
    with pytest.raises(
        DataError, match=rf"pools by .*{named[-3:]}; mean, cls, lasttoken alone can be trained\. Continue a copy"
    ):
        files.check_trained()


@pytest.mark.parametrize("kinds", [["x.Pooling", "x.WordWeights"], ["x.Dense", "x.Pooling"], ["custom_st.Transformer"]])
def test_a_module_with_weights_or_code_of_its_own_is_not_continued(tmp_path: Path, kinds: list[str]) -> None:
    files = files_of(tmp_path, "x.Transformer", *kinds)
    with pytest.raises(
        DataError, match=r"has a module (WordWeights|Dense|custom_st.Transformer), whose weights would not be trained"
    ):
        files.check_trained()


@pytest.mark.parametrize(
    ("contents", "fault"),
    [
        ({"prompts": {"prompts": {"query": "q"}, "default_prompt_name": "sts"}}, "names 'sts' as its default"),
        ({"prompts": []}, f"{PROMPTS} is damaged"),
        ({"prompts": {"prompts": [1]}}, "its prompts are not texts by name. Fetch it again"),
        ({"prompts": {"prompts": {"query": 3}}}, "its prompts are not texts by name. Fetch it again"),
        ({"modules": "[{"}, "modules.json is damaged"),
        ({"modules": {"a": 1}}, "modules.json is damaged"),
        ({"modules": [{"a": 1}]}, "modules.json is damaged: each module needs a type and a path"),
        ({"modules": [{"type": "x.Pooling", "path": "1"}], "pooling": "[]"}, "config.json is damaged"),
    ],
)  # fmt: skip
def test_damage_is_named(tmp_path: Path, contents: dict[str, Any], fault: str) -> None:
    with pytest.raises(DataError) as refused:
        files_of(tmp_path, **contents)
    assert fault in str(refused.value)
