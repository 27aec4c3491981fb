"""The recipe behind `xalign continue`: the same by `xalign pretrain FILE`, and what stands in it."""

from __future__ import annotations

import json
import string
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, BertModel, PreTrainedTokenizerFast

from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import ParallelCorpus
from xalign_ray.continuing import query_set
from xalign_ray.continuing.files import as_sentences, look_at_kept
from xalign_ray.continuing.five_lines import read_five_lines
from xalign_ray.continuing.recipe import Continuation
from xalign_ray.continuing.sentence_sets import QuerySet
from xalign_ray.continuing.story import describe_needs, resolve
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.language_id import codes_in_name

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 1_200,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an encoder with a head, one without, pairs, text and a dictionary."""
    monkeypatch.chdir(tmp_path)
    for name, kind in {"mlm": BertForMaskedLM, "bare": BertModel}.items():
        model = kind(BertConfig(**SIZES))
        model.config.save_pretrained(tmp_path / name)
        weights = {key: value.numpy() for key, value in model.state_dict().items() if "decoder" not in key}
        save_file(weights, tmp_path / name / "model.safetensors")
        write_characters(tmp_path / name)
    pairs = "".join(f"sentence {number}\tSatz {number}\n" for number in range(1000))
    for file in ("pairs.en-de.tsv", "test.en-de.tsv", "other.en-fr.tsv"):
        (tmp_path / file).write_text(pairs)
    (tmp_path / "kept.en-fr.tsv").write_text(pairs.replace("sentence ", "sentences "))
    (tmp_path / "dictionary.en-de.tsv").write_text("dog\tHund\n")
    (tmp_path / "text.de.txt").write_text("Ein Satz.\n" * 1000)
    (tmp_path / "other.tsv").write_text("fr\tes\n" + pairs)
    return tmp_path


def write_characters(folder: Path) -> None:
    """A tokenizer of single characters."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *string.ascii_letters, *string.digits, *string.punctuation, *"üéäöß"]
    backend = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    characters = pre_tokenizers.Split(Regex("."), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), characters])  # type: ignore[assignment]
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))  # type: ignore[assignment]
    special: Any = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), pieces[:4], strict=True))
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)


def resolved(model: str = "bare", pairs: str = "pairs.en-de.tsv", **options: Any) -> Continuation:
    return resolve(read_five_lines(model, {"pairs": pairs.split(), **options}))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"test": "test.en-de.tsv", "output": "runs/mine", "workers": 2},
        {"model": "mlm", "text": "text.de.txt", "replay": 0.2},
        {"model": "mlm", "method": "align", "dictionary": "dictionary.en-de.tsv"},
        {"method": "align", "dictionary": "dictionary.en-de.tsv", "steps": 7},
        {"model": "mlm", "pairs": "", "dictionary": "dictionary.en-de.tsv", "text": "text.de.txt"},
        {"model": "mlm", "method": "weam"},
        {"method": "ppa"},
        {"model": "mlm", "method": "mlm", "text": "text.de.txt", "pairs": ""},
        {"set": ("train.optimizer.learning_rate=1e-4", "objectives.0.temperature=0.1", "seed=3")},
        {"pairs": "pairs.en-de.tsv other.en-fr.tsv"},
        {"method": "weam", "set": ("allow=[new_head]",)},
        {"method": "distill", "teacher": "mlm"},
        {"method": "add"},
    ],
)
def test_shown_recipe_is_the_recipe_that_runs(folder: Path, options: dict[str, Any]) -> None:
    found = resolved(**options)
    (folder / "shown.yaml").write_text(found.as_yaml)
    assert load_recipe("shown.yaml").config == found.recipe.config


@pytest.mark.usefixtures("folder")
def test_a_plan_opens_no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xalign_ray.models.vectors", None)
    with pytest.raises(ImportError):
        resolved()
    planned = resolve(read_five_lines("bare", {"pairs": ["pairs.en-de.tsv"]}), opens=False)
    assert "memory" in describe_needs(planned)
    assert not [note for note in planned.notes if note.startswith("Temperature")]


def test_pairs_of_an_encoder_without_a_head() -> None:
    found = resolved()
    config = found.recipe.config
    assert [one.kind for one in config.objectives] == ["sentence_contrast"]
    assert [(one.kind, getattr(one, "text", "")) for one in config.streams] == [("contrasted_pairs", "none")]
    assert (config.data.test_fraction, config.train.max_steps, config.train.eval_steps) == (0.1, 156, 0)
    assert (config.checkpoint.save_steps, config.checkpoint.save_total_limit) == (100, 1)
    assert found.recipe.name == "bare-contrast"
    assert found.notes[-1] == (
        "156 steps: 10 passes over 1,000 pairs in steps of 64, at most 10 passes (--steps sets another number)."
    )


def test_steps_set_as_a_key_are_the_steps_that_are_said() -> None:
    assert resolved(set=("train.max_steps=7",)).notes[-1] == "7 steps of 64 pairs, as --set says."


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, False),
        ({"method": "contrast"}, False),
        ({"model": "mlm", "method": "weam"}, False),
        ({"method": "align"}, True),
        ({"set": ("data.tokenizer={kind: exchange, path: mlm, init: dictionary}",)}, True),
    ],
)
def test_a_dictionary_is_used_or_the_user_is_told(options: dict[str, Any], used: bool) -> None:
    found = resolved(**options, dictionary="dictionary.en-de.tsv")
    assert bool(found.recipe.config.data.dictionaries) == used
    assert any(note.startswith("The dictionary is not used: ") for note in found.notes) != used


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (
            {"method": "align", "dictionary": "dictionary.tsv"},
            "The pairs are scored and not trained on: align reads the",
        ),
        ({"method": "mlm"}, "The pairs are scored and not trained on: mlm reads the text in their place."),
        ({"replay": 0.0}, "The text is not used: --replay is 0."),
        ({"model": "bare"}, "The text is not used: bare has no masked-LM head to train on it."),
        (
            {"model": "bare", "keep": ["kept.en-fr.tsv", "text.de.txt"], "lose_at_most": 0.5, "text": ()},
            "Text in de is not bounded: bare has no masked-LM head.",
        ),
    ],
)
def test_what_is_not_trained_on_is_said(folder: Path, options: dict[str, Any], note: str) -> None:
    (folder / "dictionary.tsv").write_text("dog\tHund\n")  # its languages are those of the pairs
    found = resolved(**{"model": "mlm", "text": "text.de.txt", **options})
    assert any(one.startswith(note) for one in found.notes), found.notes
    data = found.recipe.config.data
    assert (not data.parallel and bool(data.tests)) == ("The pairs" in note)


@pytest.mark.parametrize(
    ("model", "method", "used"),
    [("bare", "contrast", True), ("mlm", "contrast-tlm", True), ("bare", "ppa", False), ("bare", "add", False)],
)
def test_hard_negatives_are_used_or_the_user_is_told(folder: Path, model: str, method: str, used: bool) -> None:
    rows = "".join(f"question {n},answer {n},reply {n}\n" for n in range(1000))
    (folder / "triples.csv").write_text(f"anchor,positive,negative\n{rows}")
    found = resolved(model, "triples.csv", languages=("en", "en"), method=method)
    assert found.recipe.config.data.negatives_of == ((0,) if used else ())
    assert any(note.startswith("The hard negatives are not used: ") for note in found.notes) != used


def test_kept_text_is_read_in_its_form(folder: Path) -> None:
    (folder / "kept.fr.conllu").write_text(
        "# text = La vie\n1\tLa\tle\tDET\t_\t_\t2\tdet\t_\t_\n2\tvie\tvie\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    )
    (folder / "kept.es.jsonl").write_text('{"text": "una frase"}\n')
    kept = resolved(keep=["kept.fr.conllu", "kept.es.jsonl"]).data.kept
    assert [(one.language, one.texts) for one in kept] == [("fr", [("La vie", "fr")]), ("es", [("una frase", "es")])]
    (folder / "news.csv").write_text("en,de\na house,ein Haus\n")
    for flag in ("text", "keep"):
        with pytest.raises(ConfigError, match=rf"--{flag} de=news\.csv is a table\. Give plain text"):
            resolved("mlm", **{flag: ["de=news.csv"]})


STS = [f"Ein Mann tanzt heute mit {n} Hunden.,Ein Mann tanzt nicht mit {n} Hunden.,{n % 6}" for n in range(120)]


@pytest.mark.parametrize(
    ("name", "content", "written", "expected"),
    [
        ("stsb-de-dev.csv", STS, "stsb-de-dev.csv", ("scored pairs", "de", 120)),
        ("sts-de.csv", STS, "sts-de.csv", ("scored pairs", "de", 120)),  # sts is a language too
        ("sts.csv", STS, "sts.csv", ("scored pairs", "de", 120)),  # by its words
        ("sts.csv", STS, "sv=sts.csv", ("scored pairs", "sv", 120)),
        ("sts.csv", ["genre,score,sentence1,sentence2", *(f"news,{row[-1]},{row[:-2]}" for row in STS)],
         "sts.csv", ("scored pairs", "de", 120)),
        ("a.de.jsonl", [json.dumps({"sentence1": "Ein Haus.", "sentence2": "Haus.", "score": n}) for n in range(9)],
         "a.de.jsonl", ("scored pairs", "de", 9)),
        # Two languages by the names of columns, or by their words: translations with a score.
        ("t.csv", ["en,de,score", *(f"A man dances,Ein Mann tanzt,{n}" for n in range(9))],
         "t.csv", ("pairs", "de", 9)),
        ("t.csv", [f"A man dances in the house {n},Ein Mann tanzt im Haus {n},0.{n}" for n in range(1, 9)],
         "t.csv", ("pairs", "de", 8)),
        ("t.en-fr.csv", ["source,target,score", "Qq zz,Qq yy,1", "Qq yy,Qq zz,2"], "t.en-fr.csv", ("pairs", "fr", 2)),
        ("xx.csv", ["Qq zz,Qq yy,1", "Qq yy,Qq zz,2"], "xx.csv", "in a language that is not clear. Call it by a code"),
        ("sts.csv", [*STS, *["Ein Mann,Mann,"] * 9], "de=sts.csv", "9 of 129 rows are no scored pairs"),
    ],
)  # fmt: skip
def test_kind_of_a_kept_table_is_what_it_holds(
    folder: Path, name: str, content: list[str], written: str, expected: tuple[str, str, int] | str
) -> None:
    (folder / name).write_text("\n".join(content))
    if isinstance(expected, str):
        with pytest.raises((ConfigError, DataError), match=expected):
            look_at_kept([written])
    else:
        (kept,) = look_at_kept([written]).sets
        assert (kept.unit, kept.language, len(kept)) == expected


def write_beir(folder: Path, qrels: list[str]) -> None:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"p{n}", "title": "T" * (n == 0), "text": f"Text {n}"}) + "\n" for n in range(9))
    )
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "Wo?"}\n{"_id": "q2", "text": "Wer?"}\n')
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *qrels]))


@pytest.mark.parametrize(
    ("qrels", "fault"),
    [
        (["q1\tp1\t2", "q1\tp8\t1", "q2\tp2\t0"], ""),
        (["q1\tp1\t0"], "no query has a relevant passage"),
        (["q1\tgone\t1"], "line 2: its query or its passage is not in"),
    ],
)
def test_folder_in_the_layout_of_beir_is_a_retrieval_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch, qrels: list[str], fault: str
) -> None:
    write_beir(folder / "quiz-de", qrels)
    monkeypatch.setattr(query_set, "MAX_PASSAGES", 5)
    if fault:
        with pytest.raises(DataError, match=fault):
            look_at_kept(["quiz-de"])
        return
    for written, language in (("quiz-de", "de"), ("fr=quiz-de", "fr")):
        (kept,) = look_at_kept([written]).sets
        assert isinstance(kept, QuerySet)
        assert (kept.language, kept.split, kept.queries) == (language, "quiz-de", {"q1": "Wo?"})
        assert kept.judged["q1"] == {"p1": 2, "p8": 1}
        assert len(kept.passages) == 5
        assert {"p1", "p8", "p0"} <= {*kept.passages}
        assert kept.passages["p0"] == "T Text 0"


def test_a_new_head_is_trained_where_it_is_allowed() -> None:
    found = resolved(method="mlm", text="text.de.txt", set=("allow=[new_head]",))
    assert [one.kind for one in found.recipe.config.objectives] == ["masked_lm"]
    assert "allow: [new_head]" in found.as_yaml
    with pytest.raises(ConfigError, match=r"has no masked-LM head: .* or --set allow=\[new_head\]"):
        resolved(method="mlm", text="text.de.txt")


def test_text_of_a_pattern_is_as_long_as_its_files(folder: Path) -> None:
    (folder / "text.de.txt").write_text("Ein Satz.\n" * 1_000_000)
    one, other = (resolved("mlm", "", method="mlm", text=path) for path in ("text.de.txt", "t*.de.txt"))
    assert "610 steps: 1 pass over about 10.0 MB of text" in one.notes[-1]
    assert other.notes[-1] == one.notes[-1]


def test_text_beside_pairs_is_a_tenth_of_the_rows() -> None:
    streams = resolved("mlm", text="text.de.txt").recipe.config.streams
    assert resolved("mlm", text="text.de.txt").recipe.config.train.eval_steps is None
    weights = {one.kind: one.weight for one in streams}
    assert weights["masked_text"] / sum(weights.values()) == pytest.approx(0.1, abs=1e-6)


def test_given_tests_are_kept_out_in_place_of_a_share() -> None:
    data = resolved(test="test.en-de.tsv").recipe.config.data
    assert (data.test_fraction, [Path(path).name for one in data.tests for path in one.paths]) == (
        0.0,
        ["test.en-de.tsv"],
    )


@pytest.mark.parametrize(
    ("options", "fraction", "files"),
    [
        ({}, 0.05, []),
        ({"test": "test.en-de.tsv"}, 0.05, []),
        ({"dev": "test.en-de.tsv"}, 0.0, ["test.en-de.tsv"]),
        ({"keep_best": False}, 0.0, []),
    ],
)
def test_dev_pairs_are_given_or_cut(options: dict[str, Any], fraction: float, files: list[str]) -> None:
    found = resolved(**options)
    data = found.recipe.config.data
    assert (data.dev_fraction, [Path(path).name for one in data.dev for path in one.paths]) == (fraction, files)
    assert any("are dev pairs" in note for note in found.notes) == bool(fraction)
    looked_at = "2 sources: 2,000" if {"test", "dev"} & {*options} else "pairs.en-de.tsv (en, de): 1,000"
    assert f"{looked_at} pairs; nothing doubtful" in found.notes


@pytest.mark.parametrize(("files", "split"), [(1, "0.en-de.tsv"), (9, "0.en-de.tsv and 8 more")])
def test_many_kept_files_have_a_short_name_for_a_folder(tmp_path: Path, files: int, split: str) -> None:
    paths = [tmp_path / f"{number}.en-de.tsv" for number in range(files)]
    for path in paths:
        path.write_text("one\teins\n")
    kept = [ParallelCorpus(format="tsv", languages=("en", "de"), paths=(str(path),)) for path in paths]
    (found,) = as_sentences(kept)
    assert (found.split, len(found), found.first[0], found.second[0]) == (split, files, "one", "eins")


def test_large_encoders_are_continued_at_half_the_rate(folder: Path) -> None:
    assert resolved().recipe.config.train.optimizer.learning_rate == 2e-5
    BertModel(BertConfig.from_dict(SIZES | {"hidden_size": 1024})).save_pretrained(folder / "bare")
    assert resolved().recipe.config.train.optimizer.learning_rate == 1e-5


@pytest.mark.parametrize(("key", "pooling"), [("pooling_mode_cls_token", "cls"), ("pooling_mode_mean_tokens", "mean")])
@pytest.mark.parametrize("method", ["contrast", "ppa"])  # the paper's PPA has cls
def test_the_vector_that_is_trained_is_the_one_that_is_scored(
    folder: Path, method: str, key: str, pooling: str
) -> None:
    (folder / "bare" / "modules.json").write_text(json.dumps([{"path": "1_Pooling", "type": "x.models.Pooling"}]))
    (folder / "bare" / "1_Pooling").mkdir()
    (folder / "bare" / "1_Pooling" / "config.json").write_text(json.dumps({key: True}))
    objectives = resolved(method=method, set=("allow=[new_head]",)).recipe.config.objectives
    assert {one.pooling for one in objectives if hasattr(one, "pooling")} == {pooling}  # pyright: ignore[reportAttributeAccessIssue]


def test_language_that_the_vocabulary_cannot_write_is_refused_unless_allowed(folder: Path) -> None:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "sentence": 1} | {str(n): n + 2 for n in range(1000)}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["[UNK]"])
    backend.save(str(folder / "bare" / "tokenizer.json"))
    with pytest.raises(
        ConfigError, match=r"^50 % of the pieces of de are unknown to the vocabulary of bare, which.* 0\.5"
    ):
        resolved()
    assert "Pieces a word: de 1.00 (50.0 % unknown), en 1.00." in resolved(allow_unknown=0.5).notes


@pytest.mark.parametrize(("prompt", "reserve"), [("", None), ("query: ", None), ("en en de de en: ", 0.45)])
def test_a_prompt_of_the_encoder_is_trained_and_scored_with(folder: Path, prompt: str, reserve: float | None) -> None:
    (folder / "bare" / "modules.json").write_text(json.dumps([{"path": "", "type": "x.models.Transformer"}]))
    (folder / "bare" / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": prompt}}))
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.enable_padding(length=128)  # as released ones have it
    tokenizer.save(str(folder / "bare" / "tokenizer.json"))
    found = resolved()
    behind = f"behind {prompt!r}" if prompt else "no prompt"
    assert sum(one.startswith(f"Sentence vectors: mean of the last layer, {behind} (") for one in found.notes) == 1
    (stream,) = found.recipe.config.streams
    assert stream.prompt == prompt  # pyright: ignore[reportAttributeAccessIssue]
    assert found.tree["data"].get("reserve_fraction") == reserve


def test_a_teacher_whose_vectors_have_length_1_is_learned_so(folder: Path) -> None:
    pairs = "pairs.en-de.tsv other.en-fr.tsv"
    plain = resolved(method="distill", teacher="mlm", pairs=pairs).recipe.config
    assert (plain.data.teacher.language, plain.objectives[0].normalize) == ("en", False)  # type: ignore[union-attr]
    modules = [{"path": "1_Pooling", "type": "x.Pooling"}, {"path": "2_Normalize", "type": "x.Normalize"}]
    (folder / "mlm" / "modules.json").write_text(json.dumps(modules))
    taught = resolved(method="distill", teacher="mlm", pairs=pairs).recipe.config
    assert taught.objectives[0].normalize  # type: ignore[union-attr]


CARD = """---
language:
- multilingual
- {}
- no
---
# A card
"""
POOLED = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]


def write_letters(folder: Path) -> None:
    """A tokenizer that has `sentence` and its number as a piece each, and of `Satz` each letter."""
    pieces = {"[UNK]": 0, "sentence": 1, **{text: 2 + n for n, text in enumerate("Satz0123456789")}}
    pieces |= {f"##{letter}": 20 + n for n, letter in enumerate("atz0123456789")}
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.add_special_tokens(["[UNK]"])
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(
    ("card", "pairs", "reason"),
    [
        ("de", "pairs.en-de.tsv", ""),
        ("en", "pairs.en-de.tsv", "its model card lists 2 languages, and de is none"),
        ("en\n- deu", "pairs.en-de.tsv other.en-fr.tsv", "its model card lists 3 languages, and fr is none"),
        ("de", "other.en-fr.tsv", ""),  # the English that its teacher reads is new too
        ("", "pairs.en-de.tsv", ""),
    ],
)
def test_a_language_that_is_new_to_an_encoder_of_sentences_is_added(
    folder: Path, card: str, pairs: str, reason: str
) -> None:
    bare = folder / "bare"
    write_letters(bare)
    if card:
        (bare / "README.md").write_text(CARD.format(card))
    assert resolved(pairs=pairs).recipe.name == "bare-contrast"  # not one of sentences
    (bare / "modules.json").write_text(json.dumps(POOLED))
    (bare / "1_Pooling").mkdir()
    (bare / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    found = resolved(pairs=pairs)
    assert found.recipe.name == ("bare-add" if reason else "bare-contrast")
    if reason:
        assert found.notes[0] == f"Method add: pairs, an encoder of sentences, and a new language ({reason})."
        teacher = found.recipe.config.data.teacher
        assert teacher is not None
        assert (teacher.path, teacher.language) == ("bare", "en")
    assert resolved(pairs=pairs, method="contrast").recipe.name == "bare-contrast"
    rows = "".join(f"sentence {n},Satz {n},Satz {n + 1}\n" for n in range(1000))
    (folder / "triples.csv").write_text(f"anchor,positive,negative\n{rows}")  # which add would leave unused
    assert resolved(pairs="triples.csv", languages=("en", "de")).recipe.name == "bare-contrast"


UNKNOWN_LETTERS = "\u0456\u0457\u0454 \u0491\u0454\u0457 \u0454\u0491\u0456"


def test_pieces_are_of_the_language_that_costs_many(folder: Path) -> None:
    write_letters(folder / "bare")
    with pytest.raises(ConfigError, match=r"--pieces 7 makes pieces of languages .* none does \(de \d"):
        resolved(pieces=7)
    pairs = folder / "pairs.en-de.tsv"
    pairs.write_text("".join(f"sentence {n}\t{UNKNOWN_LETTERS}\n" for n in range(300)))
    with pytest.raises(ConfigError, match=r"none does \(de 1\.00 \(100\.0 % unknown"):
        resolved(pieces=7)  # WordPiece gets no letters
    unigram = Tokenizer(models.Unigram([("[UNK]", 0.0), ("sentence", -1.0), *((d, -2.0) for d in "0123456789")], 0))
    unigram.add_special_tokens(["[UNK]"])
    unigram.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    unigram.save(str(folder / "bare" / "tokenizer.json"))
    with pytest.raises(ConfigError, match=r"100 % of the pieces of de are unknown .*--pieces 2000"):
        resolved(method="contrast")
    assert resolved(pieces=7).recipe.config.data.tokenizer.new_pieces_of == ("de",)  # type: ignore[union-attr]
    write_letters(folder / "bare")
    pairs.write_text("".join(f"sentence {n}\tSatz Satz Satz\n" for n in range(300)))
    found = resolved(pieces=7)
    tokenizer, train = found.recipe.config.data.tokenizer, found.recipe.config.train
    assert (tokenizer.kind, tokenizer.new_pieces, tokenizer.new_pieces_of) == ("start", 7, ("de",))  # type: ignore[union-attr]
    assert train.trainable == ((0, "new_rows"), (0.1, "all"))
    assert train.optimizer.rates == {"new_rows": 50.0}


def test_rows_are_no_longer_than_the_encoder_has_positions(folder: Path) -> None:
    assert resolved().recipe.config.data.max_seq_length == 128
    BertModel(BertConfig.from_dict(SIZES | {"max_position_embeddings": 64})).save_pretrained(folder / "bare")
    assert resolved().recipe.config.data.max_seq_length == 64


def test_resolving_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    resolved(output="runs/mine")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "gone"}, "gone is no folder, and "),
        ({"model": "./gone"}, "there is no folder './gone'"),
        ({"model": "mlm", "method": "mlm", "text": "my-text.txt", "pairs": ""}, "write LANGUAGE=FILE, such as"),
        ({"keep": "./pairs.en-de.tsv"}, "pairs.en-de.tsv, which is trained on: forgetting is measured on other files."),
        (
            {"keep": "test.en-de.tsv"},
            "--keep: 1,000 pairs of test.en-de.tsv (en, de) are trained on: forgetting is measured",
        ),
        (
            {"model": "mlm", "text": "t*.de.txt", "keep": "text.de.txt"},
            "text.de.txt, which is trained on: forgetting is measured on other files.",
        ),
        (
            {"keep": "text.de.txt", "lose_at_most": 0.5},
            "bare has no masked-LM head, so text cannot be bounded. Name pairs or scored pairs in --keep.",
        ),
        (
            {"method": "add", "pairs": "pairs.en-de.tsv other.tsv"},
            "--method add needs one language in all pairs; en-de, fr-es share none.",
        ),
        ({"set": ("train.lr=1",)}, "unknown key 'train.lr'. Did you mean 'train.optimizer.learning_rate'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises((ConfigError, DataError)) as refused:
        resolved(**options)
    assert said in str(refused.value)


def test_yaml_of_a_recipe_is_short() -> None:
    # The temperature is given: the one at which an untrained encoder's own loss is least is chance.
    given = {"test": "test.en-de.tsv", "steps": 5, "set": ("objectives.0.temperature=0.1",)}
    tree = yaml.safe_load(resolved(**given).as_yaml)
    assert tree["extends"] == "continue/contrast"
    assert set(tree) == {"extends", "output", "data", "objectives", "model", "train", "parallel", "track"}


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("news.en-de.tsv", ["en", "de"]),
        ("en_fr.csv.gz", ["en", "fr"]),
        ("en-de.0-5000.txt", ["en", "de"]),
        ("train.en-zh-Hans.tsv", ["en", "zh-Hans"]),
        ("de.txt", ["de"]),
        ("wiki-pt-BR.txt.gz", ["pt-BR"]),
        ("en-en-x-inv.txt", ["en", "en-x-inv"]),
        ("my-text.txt", []),
        ("my-dev-data.csv", []),
    ],
)
def test_language_codes_of_a_file_name(name: str, codes: list[str]) -> None:
    assert codes_in_name(f"a.folder/of-fr/{name}") == codes


@pytest.mark.parametrize(
    ("count", "note"),
    [
        (99, "--keep: 99 {} can show only a large loss. Give 100 or more."),
        (100, None),
        (10_000, None),
        (10_001, "--keep: of 10,001 {} 10,000 are scored, evenly spaced."),
    ],
)
def test_few_or_many_kept_sentences_are_noted(folder: Path, count: int, note: str | None) -> None:
    (folder / "kept.en-fr.tsv").write_text("en\tfr\n" + "".join(f"sentence {n}\tphrase {n}\n" for n in range(count)))
    (folder / "kept.es.txt").write_text("".join(f"frase {n}\n" for n in range(count)))
    notes = [one for one in resolved(keep=["kept.en-fr.tsv", "kept.es.txt"]).notes if one.startswith("--keep")]
    assert notes == ([note.format("pairs of fr"), note.format("lines of es")] if note else [])


def test_kept_text_without_a_line_is_refused(folder: Path) -> None:
    (folder / "kept.es.txt").write_text("\n")
    with pytest.raises(DataError, match=r"kept\.es\.txt holds no documents\. Check that it is the right file"):
        resolved(keep=["kept.es.txt"])
