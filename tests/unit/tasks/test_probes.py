"""The alignment score on embedding tables written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from xalign_ray.errors import DataError
from xalign_ray.models.inference import Encoder
from xalign_ray.models.nearest import Indices, Vectors, nearest_csls
from xalign_ray.models.open import open_encoder
from xalign_ray.tasks import probes
from xalign_ray.tasks.probes import ALIGNMENT, DROPPED, HELD_OUT, TRAINED, WordPair, mean_cosine_random, read_word_pairs
from xalign_ray.tasks.scores import Score

VECTORS = {
    "dog": [1, 0], "hund": [2, 0.1], "köter": [1, -0.5],
    "cat": [0, 1], "katze": [-1, 0.2],
    "sun": [-1, 0], "sonne": [0.1, 3],
    "bahn": [0, -1], "##hof": [0, -3], "station": [0, -1],
    "golf": [5, 5],
}  # fmt: skip
PAIRS = {
    "trained": [["en", "dog", "de", "hund"], ["en", "dog", "de", "köter"], ["de", "katze", "en", "cat"]],
    "held_out": [["en", "sun", "de", "sonne"], ["en", "station", "de", "bahnhof"], ["en", "ghost", "de", "hund"]],
}


def write_pairs(folder: Path, pairs: dict[str, list[list[str]]]) -> None:
    (folder / "dictionary_pairs.json").write_text(json.dumps(pairs), encoding="utf-8")


def by_metric(scores: list[Score], language: str) -> dict[str, Score]:
    return {score.metric: score for score in scores if score.language == language}


def test_a_word_is_right_when_any_translation_is_nearest_among_all_words_of_the_language(
    make_bert: Callable[..., Path],
):
    # By cosine: dog -> hund (right), cat -> sonne, sun -> katze, station -> bahnhof (mean of two pieces, right);
    # ghost has no known piece. Candidates: bahnhof, hund, katze, köter, sonne.
    folder = make_bert(list(VECTORS), vectors=VECTORS)
    write_pairs(folder, PAIRS)
    found = by_metric(ALIGNMENT.evaluate(str(folder), None), "en-de")
    assert (found["alignment_trained"].value, found["alignment_trained"].n) == (0.5, 2)
    assert found["alignment_trained"].chance == pytest.approx((2 / 5 + 1 / 5) / 2)
    assert (found["alignment_heldout"].value, found["alignment_heldout"].n) == (pytest.approx(1 / 3), 3)
    assert found["alignment_heldout"].chance == pytest.approx((1 / 5 + 1 / 5) / 3)
    assert (found["alignment_all"].value, found["alignment_all"].n) == (pytest.approx(2 / 5), 5)
    assert found["alignment_all"].chance == pytest.approx((2 / 5 + 1 / 5 + 1 / 5 + 1 / 5) / 5)
    assert {score.layer for score in found.values()} == {"embedding_table"}
    assert {score.split for score in found.values()} == {"dictionary"}


def test_words_are_compared_once_for_all_parts(make_bert: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    """Their nearest words are the same, whichever part a question is in."""
    folder, calls = make_bert(list(VECTORS), vectors=VECTORS), list[int]()
    write_pairs(folder, PAIRS)
    once = ALIGNMENT.evaluate(str(folder), None)

    def counted(queries: Vectors, candidates: Vectors, sources: Vectors, device: str) -> Indices:
        calls.append(len(queries))
        return nearest_csls(queries, candidates, sources, device=device)

    monkeypatch.setattr(probes, "nearest_csls", counted)
    assert ALIGNMENT.evaluate(str(folder), None) == once
    assert calls == [4]  # the words of all three parts that have a vector


def test_the_words_that_found_a_translation_give_the_scores_again(make_bert: Callable[..., Path], tmp_path: Path):
    folder = make_bert(list(VECTORS), vectors=VECTORS)
    write_pairs(folder, {**PAIRS, "held_out": [*PAIRS["held_out"], ["en", "dog", "nl", "hund"]]})
    scores = ALIGNMENT.evaluate(str(folder), None, predictions=tmp_path / "predictions")
    said = {
        path.stem: {row["key"]: row["prediction"] for row in map(json.loads, path.read_text().splitlines())}
        for path in (tmp_path / "predictions").iterdir()
    }
    # ghost (no known piece), station and sun, in the order of the alphabet
    assert said["en-de"]["alignment_heldout embedding_table"] == "010"
    counted = [score for score in scores if score.language in said]
    assert {score.language for score in counted} == {"en-de", "en-nl"}
    assert len({score.metric for score in counted}) == 6
    for score in counted:
        measure = ALIGNMENT.measure_again(score, said[score.language])
        assert measure
        assert (measure.value, measure.chance, measure.n) == (score.value, score.chance, score.n)
    monitor = next(score for score in scores if score.metric == "mean_cosine_random")
    assert ALIGNMENT.measure_again(monitor, said["en-de"]) is None


def test_csls_is_scored_beside_cosine(make_bert: Callable[..., Path]):
    # "hund" lies near every English word; CSLS takes its mean cosine with them off, so that "ball" goes to "kugel".
    vectors = {
        "dog": [1, 0, 0], "paw": [0.8, 0.6, 0], "ball": [0.28, 0.96, 0],
        "hund": [0.8, 0.6, 0], "kugel": [-0.2, 0.75, 0.63],
    }  # fmt: skip
    folder = make_bert(list(vectors), vectors=vectors)
    write_pairs(folder, {"trained": [["en", "dog", "de", "hund"], ["en", "paw", "de", "hund"]],
                         "held_out": [["en", "ball", "de", "kugel"]]})  # fmt: skip
    found = by_metric(ALIGNMENT.evaluate(str(folder), None), "en-de")
    assert (found["alignment_heldout"].value, found["alignment_heldout_csls"].value) == (0.0, 1.0)


def test_words_that_are_their_own_translation_are_not_asked_but_stay_candidates(make_bert: Callable[..., Path]):
    folder = make_bert(list(VECTORS), vectors=VECTORS | {"cat": [5, 5.1]})
    write_pairs(folder, {"trained": [], "held_out": [["en", "Golf", "de", "golf"], ["en", "Golf", "de", "hund"],
                                                     ["en", "cat", "de", "katze"]]})  # fmt: skip
    score = by_metric(ALIGNMENT.evaluate(str(folder), None), "en-de")["alignment_heldout"]
    assert (score.n, score.value, score.chance) == (1, 0.0, pytest.approx(1 / 3))


def test_an_empty_part_has_no_score(make_bert: Callable[..., Path]):
    folder = make_bert(list(VECTORS), vectors=VECTORS)
    write_pairs(folder, {"trained": PAIRS["trained"], "held_out": []})
    scores = ALIGNMENT.evaluate(str(folder), None)
    parts = {score.metric.removesuffix("_csls") for score in scores}
    assert parts == {"alignment_trained", "alignment_all", "mean_cosine_random"}
    assert (scores[-1].metric, scores[-1].language, scores[-1].n, scores[-1].chance) == (
        "mean_cosine_random", "all", 10_000, None,
    )  # fmt: skip


def test_the_mean_over_pairs_of_languages_weighs_them_alike(make_bert: Callable[..., Path]):
    folder = make_bert(list(VECTORS), vectors=VECTORS)
    write_pairs(folder, {"trained": [], "held_out": [*PAIRS["held_out"], ["en", "dog", "nl", "hund"]]})
    scores = ALIGNMENT.evaluate(str(folder), None)
    assert by_metric(scores, "en-nl")["alignment_heldout"].value == 1.0
    mean = by_metric(scores, "all")["alignment_heldout"]
    assert (mean.value, mean.n) == (pytest.approx((1 + 1 / 3) / 2), 4)
    only = ALIGNMENT.evaluate(str(folder), None, languages=["nl"])
    assert {score.language for score in only} == {"en-nl", "all"}


def test_a_models_language_vectors_are_added_first(make_bert: Callable[..., Path]):
    # The table alone says dog -> katze (equal rows). With the languages added dog and hund are both [1, 0], katze is
    # [1, -2].
    vectors = {"dog": [1, -3], "hund": [1, -1], "katze": [1, -3], "cat": [-1, 0]}
    settings = {"vectors": vectors, "languages": ["en", "de"]}
    pairs = {"trained": [["en", "cat", "de", "katze"]], "held_out": [["en", "dog", "de", "hund"]]}
    for added, value in (({"en": [0, 3], "de": [0, 1]}, 1.0), ({"en": [0, 0], "de": [0, 0]}, 0.0)):
        folder = make_bert(list(vectors), language_vectors=added, **settings)
        write_pairs(folder, pairs)
        assert by_metric(ALIGNMENT.evaluate(str(folder), None), "en-de")["alignment_heldout"].value == value


def test_pairs_of_a_language_without_an_embedding_are_refused(make_bert: Callable[..., Path]):
    folder = make_bert(list(VECTORS), languages=["en", "fr"])
    write_pairs(folder, PAIRS)
    with pytest.raises(DataError, match="has language embeddings for en, fr, none for de"):
        ALIGNMENT.evaluate(str(folder), None)


def test_random_rows_of_a_collapsed_table_have_cosine_one(make_bert: Callable[..., Path]):
    words = [f"w{i}" for i in range(50)]
    collapsed = make_bert(words, vectors={word: [1 + i, 2 + 2 * i] for i, word in enumerate(words)}, name="collapsed")
    assert mean_cosine_random(Encoder.open(open_encoder(collapsed))) == pytest.approx(1.0)
    spread = make_bert(words, vectors={word: [(-1) ** i] for i, word in enumerate(words)}, name="spread")
    # Two of 50 different rows: 24/49 of the pairs point alike, 25/49 apart.
    first, again = (mean_cosine_random(Encoder.open(open_encoder(spread))) for _ in range(2))
    assert first == pytest.approx(-1 / 49, abs=0.03)
    assert first == again


def test_muse_files_are_scored_as_held_out_but_for_words_that_training_saw(
    tmp_path: Path, make_bert: Callable[..., Path]
):
    folder = make_bert(list(VECTORS), vectors=VECTORS)
    muse = tmp_path / "en-de.5000-6500.txt"
    muse.write_bytes("\ufeffdog hund\r\nsun\tsonne\r\nstation bahnhof\r\n".encode())
    found = by_metric(ALIGNMENT.evaluate(str(folder), muse), "en-de")
    assert (found["alignment_heldout"].n, found["alignment_heldout"].value) == (3, pytest.approx(2 / 3))
    assert found["alignment_heldout"].split == "en-de.5000-6500"
    assert "alignment_trained" not in found
    write_pairs(folder, {"trained": [["en", "dog", "de", "köter"]], "held_out": []})
    found = by_metric(ALIGNMENT.evaluate(str(folder), muse), "en-de")
    assert (found["alignment_trained"].n, found["alignment_trained"].value) == (1, 1.0)
    assert (found["alignment_heldout"].n, found["alignment_heldout"].value) == (2, 0.5)


def test_all_pairs_are_the_same_whatever_training_saw_of_them(tmp_path: Path, make_bert: Callable[..., Path]):
    muse = tmp_path / "en-de.txt"
    muse.write_text("dog hund\nsun sonne\nstation bahnhof\ncat katze\n")
    folder = make_bert(list(VECTORS), vectors=VECTORS)
    found = [by_metric(ALIGNMENT.evaluate(str(folder), muse), "en-de")]
    for trained in (["en", "dog", "de", "hund"], ["en", "dog", "de", "sonne"], ["en", "dog", "nl", "hond"]):
        write_pairs(folder, {"trained": [trained], "held_out": []})
        found.append(by_metric(ALIGNMENT.evaluate(str(folder), muse), "en-de"))
    assert {(own["alignment_all"].n, own["alignment_all"].value) for own in found} == {(4, 0.5)}


def test_two_languages_without_a_trained_dictionary_are_neither_trained_nor_held_out(
    tmp_path: Path, make_bert: Callable[..., Path]
):
    folder = make_bert(list(VECTORS), vectors=VECTORS)
    write_pairs(folder, {"trained": [["en", "dog", "de", "hund"]], "held_out": [["en", "sun", "de", "sonne"]]})
    muse = tmp_path / "en-pt.txt"
    muse.write_text("dog hund\nsun sonne\n")
    found = by_metric(ALIGNMENT.evaluate(str(folder), muse), "en-pt")
    assert {metric.removesuffix("_csls") for metric in found} == {"alignment_untrained", "alignment_all"}
    assert (found["alignment_untrained"].n, found["alignment_untrained"].value) == (2, 1.0)


def test_pairs_of_which_training_saw_a_word_are_not_held_out(tmp_path: Path):
    (tmp_path / "en-de.txt").write_text("Dog hund\ncat hund\nsun sonne\nhouse haus\n")
    trained = [WordPair("en", "dog", "de", "hund"), WordPair("en", "house", "nl", "huis")]
    pairs = read_word_pairs(tmp_path / "en-de.txt", trained)
    assert [(pair.source, pair.part) for pair in pairs] == [
        ("Dog", TRAINED), ("cat", DROPPED), ("sun", HELD_OUT), ("house", DROPPED),
    ], "hund and house were pulled"  # fmt: skip


def test_a_folder_of_muse_files_is_read_without_its_splits_and_controls(tmp_path: Path):
    for name in ("en-de.txt", "hi-en.txt", "en-de.0-5000.txt", "en-de.shuffled.txt", "notes.txt"):
        (tmp_path / name).write_text(f"{name} x\n" if name != "hi-en.txt" else "kutta dog\n")
    pairs = read_word_pairs(tmp_path, ())
    assert [(pair.languages, pair.source, pair.target, pair.part) for pair in pairs] == [
        (("en", "de"), "en-de.txt", "x", HELD_OUT),
        (("en", "hi"), "dog", "kutta", HELD_OUT),
    ]


def test_a_line_that_is_not_two_words_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "en-de.txt"
    path.write_text("dog hund\ncat\n")
    assert [pair.words for pair in read_word_pairs(path, [])] == [(("en", "dog"), ("de", "hund"))]
    assert "en-de.txt: 1 entries; set aside: dictionary line has one column: 1" in capsys.readouterr().err


def test_a_name_without_two_languages_is_no_dictionary(tmp_path: Path):
    (tmp_path / "words.txt").write_text("dog hund\n")
    with pytest.raises(DataError, match=r"words.txt: its name does not have its two languages. Call it en-de.txt"):
        read_word_pairs(tmp_path / "words.txt", ())
    with pytest.raises(DataError, match="holds no dictionary"):
        read_word_pairs(tmp_path, ())


@pytest.mark.parametrize("data", ["run", "run/export", "run/export/dictionary_pairs.json"])
def test_pairs_of_a_run_are_asked_of_any_encoder(make_bert: Callable[..., Path], tmp_path: Path, data: str):
    # sun -> katze is wrong, station -> bahnhof right; no word of a run's held-out pairs is a trained one.
    pairs = {**PAIRS, "held_out": PAIRS["held_out"][:2]}
    base = make_bert(list(VECTORS), vectors=VECTORS)
    export = tmp_path / "run" / "export"
    export.mkdir(parents=True)
    write_pairs(export, pairs)
    of_base = by_metric(ALIGNMENT.evaluate(str(base), tmp_path / data), "en-de")
    assert (of_base["alignment_heldout"].value, of_base["alignment_heldout"].n) == (0.5, 2)
    assert (of_base["alignment_trained"].value, of_base["alignment_trained"].n) == (0.5, 2)
    write_pairs(base, pairs)  # the encoder of that run, by its own pairs
    assert by_metric(ALIGNMENT.evaluate(str(base), None), "en-de") == of_base
    assert by_metric(ALIGNMENT.evaluate(str(base), tmp_path / data), "en-de") == of_base


def test_what_another_run_held_out_and_this_encoder_saw_is_not_held_out(tmp_path: Path):
    write_pairs(tmp_path, PAIRS)
    trained = [WordPair("en", "station", "de", "bahnhof"), WordPair("en", "moon", "de", "sonne")]
    parts = {pair.source: pair.part for pair in read_word_pairs(tmp_path, trained)}
    assert parts == {"dog": TRAINED, "cat": TRAINED, "sun": DROPPED, "station": TRAINED, "ghost": HELD_OUT}


@pytest.mark.parametrize(
    ("name", "text", "pairs"),
    [
        ("glossary.de-en.tsv", "Bahn hof\tstation\tnoun\n", [("en", "station", "de", "Bahn hof")]),
        ("a.en-de.csv", "en,de,pos\nsun,Sonne,n\n", [("en", "sun", "de", "Sonne")]),
        ("en-en-x-inv.txt", "dog god\n", [("en", "dog", "en-x-inv", "god")]),
    ],
)
def test_dictionaries_of_any_form_are_scored(tmp_path: Path, name: str, text: str, pairs: list[tuple[str, ...]]):
    (tmp_path / name).write_text(text)
    found = read_word_pairs(tmp_path / name, ())
    assert [(*pair.words[0], *pair.words[1]) for pair in found] == pairs


def test_what_is_left_out_of_a_dictionary_is_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path = tmp_path / "terms.en-de.tsv"
    path.write_text("en\tde\nTrain Station\tBahnhof\n\n")
    read_word_pairs(path, ())
    assert f"{path}: 1 entries; set aside: blank line: 1" in capfd.readouterr().err


def test_an_export_without_a_dictionary_asks_for_one(make_bert: Callable[..., Path]):
    folder = make_bert(list(VECTORS))
    with pytest.raises(
        DataError, match=r"dictionary_pairs.json is missing: this encoder's run had no dictionary. Give one"
    ):
        ALIGNMENT.evaluate(str(folder), None)


@pytest.mark.parametrize("content", ["{", '{"trained": []}', '{"trained": [["en", "dog"]], "held_out": []}'])
def test_a_damaged_list_of_pairs_is_named(make_bert: Callable[..., Path], content: str):
    folder = make_bert(list(VECTORS))
    (folder / "dictionary_pairs.json").write_text(content)
    with pytest.raises(DataError, match=r"dictionary_pairs.json is damaged \(.*\); export the run again"):
        ALIGNMENT.evaluate(str(folder), None)
