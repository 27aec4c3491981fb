"""What is fine-tuned on, seen in the batches that the model gets: English, translations, code-switched text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training, TrainingSet
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.token_classification import Sentence

MLDOC, POS, SIB, XNLI = (TUNED_TASKS[name] for name in ("mldoc", "pos", "sib", "xnli"))

PAIRS, EPOCHS = 10, 2
LANGUAGES = ("en", "de", "sw")
LABELS = ("contradiction", "entailment", "neutral")
LONE = "lonely"  # an English word that no dictionary has
PIECES = [f"{code}{side}{number}" for code in LANGUAGES for side in "ph" for number in range(PAIRS)] + [LONE, "."]
Batch = list[tuple[str, ...]]  # rows, each the pieces of both sides


class Recorded:
    """An Auto class whose models keep the batches that they are trained on, an epoch after the other."""

    def __init__(self, auto: Any = AutoModelForSequenceClassification) -> None:
        self.auto = auto
        self.batches: list[dict[str, Tensor]] = []

    def from_pretrained(self, *arguments: Any, **settings: Any) -> Any:
        opened = self.auto.from_pretrained(*arguments, **settings)
        opened[0].register_forward_pre_hook(self.keep, with_kwargs=True)
        return opened

    def keep(self, model: Any, _: Any, batch: dict[str, Tensor]) -> None:
        if model.training:
            self.batches.append({name: value.clone() for name, value in batch.items()})


def sides(code: str, number: int) -> tuple[str, str]:
    return f"{code}p{number}", f"{code}h{number}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Row-parallel training files in three languages, an English dev file and a German test file."""
    folder = tmp_path / "xnli"
    folder.mkdir()
    for code in LANGUAGES:
        rows = [
            "\t".join((f"{first} {LONE} .", second, LABELS[number % 3]))
            for number, (first, second) in enumerate(sides(code, number) for number in range(PAIRS))
        ]
        table = "\n".join(["premise\thypo\tlabel", *rows]).replace("contradiction", "contradictory")
        (folder / f"multinli.train.{code}.tsv").write_text(f"{table}\n")
        if code != "sw":
            (folder / f"{'dev' if code == 'en' else 'test'}-{code}.tsv").write_text("\n".join(rows[:6]) + "\n")
    return folder


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    """Every English word but one, with two German synonyms."""
    path = tmp_path / "en-de.txt"
    entries = [
        f"{english} {german}"
        for number in range(PAIRS)
        for english, own in zip(sides("en", number), sides("de", number), strict=True)
        for german in (own, "dep0")
    ]
    path.write_text("\n".join(entries) + "\n")
    return path


@pytest.fixture
def train(
    tmp_path: Path, data: Path, make_bert: Callable[..., Path]
) -> Callable[..., tuple[list[dict[str, Tensor]], list[Batch]]]:
    """`train(training, batch_size=, seed=, ...)`: the batches that the model got, as tensors and as pieces of sides."""

    def train_on(training: Training, seed: int = 1, batch_size: int = 4, **settings: Any):
        recorded = Recorded()
        task = type("RecordedXnli", (type(XNLI),), {"model_class": recorded})(**vars(XNLI))
        encoder = make_bert(PIECES, languages=LANGUAGES)
        fine_tuning = FineTuning(
            learning_rate=1e-3, num_train_epochs=EPOCHS, train_batch_size=batch_size, seed=seed, **settings
        )
        tune_task(task, str(encoder), [data], tmp_path / f"out-{seed}", settings=fine_tuning, training=training)
        return recorded.batches, [read_sides(batch) for batch in recorded.batches]

    return train_on


def read_sides(batch: dict[str, Tensor]) -> Batch:
    """The pieces of each row without the special ones, which stand first in the vocabulary."""
    specials = 5
    return [
        tuple(PIECES[piece - specials] for piece in row if piece >= specials) for row in batch["input_ids"].tolist()
    ]


def written(first: str, second: str) -> tuple[str, ...]:
    return first, LONE, ".", second


def epochs_of(batches: Sequence[Batch]) -> list[list[Batch]]:
    size = len(batches) // EPOCHS
    return [list(batches[start : start + size]) for start in range(0, len(batches), size)]


def rows_of(batches: Sequence[Batch]) -> Counter[tuple[str, ...]]:
    return Counter(row for batch in batches for row in batch)


def test_english_alone_is_trained_on_as_it_is(train: Callable[..., Any]):
    _, batches = train(Training())
    for epoch in epochs_of(batches):
        assert rows_of(epoch) == {written(*sides("en", number)): 1 for number in range(PAIRS)}


def test_translations_are_trained_on_beside_english(train: Callable[..., Any]):
    _, batches = train(Training(kind="translate_train"))
    everything = {written(*sides(code, number)): 1 for code in LANGUAGES for number in range(PAIRS)}
    for epoch in epochs_of(batches):
        assert rows_of(epoch) == everything


def test_translations_alone_are_trained_on_without_english(train: Callable[..., Any]):
    _, batches = train(Training(kind="translated", languages=("de",)))
    for epoch in epochs_of(batches):
        assert rows_of(epoch) == {written(*sides("de", number)): 1 for number in range(PAIRS)}


def test_named_languages_and_a_number_of_examples_are_kept_to(train: Callable[..., Any]):
    _, batches = train(Training(kind="translate_train", languages=("sw",)), max_train_samples=3)
    expected = {written(*sides(code, number)): 1 for code in ("en", "sw") for number in range(3)}
    assert rows_of(epochs_of(batches)[0]) == expected


def test_both_mixed_pairs_of_an_original_share_a_batch_and_its_plain_translation_is_in_none(
    train: Callable[..., Any],
):
    _, batches = train(Training(kind="sentence_switch"))
    for epoch in epochs_of(batches):
        mixed = []
        for code in ("de", "sw"):
            for number in range(PAIRS):
                english, other = sides("en", number), sides(code, number)
                both = {written(other[0], english[1]), written(english[0], other[1])}
                assert [both & set(batch) for batch in epoch if both & set(batch)] == [both]
                assert not any(written(*other) in batch for batch in epoch)
                mixed += both
        assert rows_of(epoch) == dict.fromkeys(mixed, 1)
        assert {len(batch) for batch in epoch} == {4}  # two originals, as many rows as the batch size says


def test_each_side_of_a_mixed_pair_is_said_to_be_in_its_own_language(train: Callable[..., Any]):
    tensors, _ = train(Training(kind="sentence_switch"))
    for batch in tensors:
        for pieces, types in zip(batch["input_ids"].tolist(), batch["token_type_ids"].tolist(), strict=True):
            for piece, token_type in zip(pieces, types, strict=True):
                name = PIECES[piece - 5] if piece >= 5 else LONE
                if name[:2] in LANGUAGES and name != LONE:
                    assert token_type == (name[2] == "h") + 2 * LANGUAGES.index(name[:2])


def test_labels_go_with_their_rows(train: Callable[..., Any]):
    for training in (Training(kind="translate_train"), Training(kind="sentence_switch")):
        tensors, batches = train(training)
        for batch, rows in zip(tensors, batches, strict=True):
            assert batch["labels"].tolist() == [int(row[0][3:]) % 3 for row in rows]


def test_words_of_the_dictionary_are_replaced_and_others_stay(train: Callable[..., Any], dictionary: Path):
    _, batches = train(Training(kind="word_switch", dictionaries=(str(dictionary),), share=1.0))
    for row in rows_of(batches):
        assert row[1:3] == (LONE, ".")
        assert row[0].startswith("de")
        assert row[3].startswith("de")
    found = {row[0] for row in rows_of(batches)}
    assert "dep0" in found  # the synonym that all words share
    assert len(found) > 2


def test_words_are_replaced_anew_in_every_epoch_and_at_the_share_asked_for(data: Path, dictionary: Path):
    training = Training(kind="word_switch", dictionaries=(str(dictionary),), share=0.5)
    switch = TrainingSet(XNLI, XNLI.find([data])["train"], "en", training, None, 1).switcher
    drawn = [[switch(epoch, number)("enp3") for number in range(400)] for epoch in (1, 2)]
    assert drawn[0] != drawn[1]
    assert sum(word != "enp3" for word in drawn[0]) == pytest.approx(200, abs=40)
    assert {"dep3", "dep0"} < set(drawn[0])


def test_which_words_are_replaced_depends_on_seed_epoch_and_example_only(train: Callable[..., Any], dictionary: Path):
    training = Training(kind="word_switch", dictionaries=(str(dictionary),))
    runs = {
        (seed, batch_size): [rows_of(epoch) for epoch in epochs_of(train(training, seed, batch_size)[1])]
        for seed, batch_size in ((1, 4), (1, 2), (2, 4))
    }
    assert runs[1, 4] == runs[1, 2]
    assert runs[1, 4] != runs[2, 4]
    assert runs[1, 4][0] != runs[1, 4][1]


def test_a_capital_at_the_beginning_of_a_sentence_does_not_hide_a_word(data: Path, dictionary: Path):
    training = Training(kind="word_switch", dictionaries=(str(dictionary),), share=1.0)
    switch = TrainingSet(XNLI, XNLI.find([data])["train"], "en", training, None, 1).switcher
    assert switch(1, 0)("Enh4") in ("deh4", "dep0")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "both"}, "kind\n  Input should be 'english', 'translated', 'translate_train', 'sentence_switch' or"),
        ({"per_language": True}, "per_language is for training on translations; english has none"),
        (
            {"kind": "word_switch", "dictionaries": ("en-de.txt",), "share": 0.0},
            "share\n  Input should be greater than 0",
        ),
        ({"share": 1.5}, "share\n  Input should be less than or equal to 1"),
        ({"kind": "word_switch"}, "dictionaries is for word_switch, which needs at least one, and for nothing"),
        ({"dictionaries": ("en-de.txt",)}, "dictionaries is for word_switch, which needs at least one"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        Training(**settings)


def test_a_language_without_a_training_file_is_named(train: Callable[..., Any]):
    with pytest.raises(DataError, match=r"xnli: no training file in fr, hi; there are files in de, en, sw\."):
        train(Training(kind="translate_train", languages=("fr", "de", "hi")))


@pytest.mark.parametrize("kind", ["translate_train", "sentence_switch"])
def test_there_must_be_a_translation(train: Callable[..., Any], data: Path, kind: str):
    for code in ("de", "sw"):
        (data / f"multinli.train.{code}.tsv").unlink()
    with pytest.raises(DataError, match=f"xnli: {kind} needs training files in languages beside en"):
        train(Training(kind=kind))


def test_a_file_that_translates_nothing_is_named(tmp_path: Path):
    for folder, ids in (("eng_Latn", (1, 2)), ("deu_Latn", (3, 4))):
        (tmp_path / folder).mkdir()
        rows = "".join(f"{number}\ttravel\tText.\n" for number in ids)
        (tmp_path / folder / "train.tsv").write_text(f"index_id\tcategory\ttext\n{rows}")
    with pytest.raises(
        DataError, match=r"deu_Latn/train.tsv shares no example with .*eng_Latn/train.tsv; is it its tr"
    ):
        list(
            TrainingSet(SIB, SIB.find([tmp_path])["train"], "en", Training(kind="translate_train"), None, 1).examples()
        )


def test_news_in_two_languages_do_not_translate_each_other(tmp_path: Path):
    for name in ("english", "german"):
        (tmp_path / f"{name}.train.1000").write_text("CCAT\tText.\n")
    with pytest.raises(DataError, match=r"german.train.1000 shares no example with .*english.train.1000"):
        list(
            TrainingSet(
                MLDOC, MLDOC.find([tmp_path])["train"], "en", Training(kind="translate_train"), None, 1
            ).examples()
        )


def test_a_dictionary_of_other_languages_is_refused(train: Callable[..., Any], tmp_path: Path):
    for name in ("de-fr.txt", "words.txt"):
        with pytest.raises(
            DataError, match=rf"{name}: its name does not say en and another language. Call it en-de.txt, terms.en-"
        ):
            train(Training(kind="word_switch", dictionaries=(str(tmp_path / name),)))


def test_a_dictionary_without_a_word_to_switch_is_refused(train: Callable[..., Any], tmp_path: Path):
    (tmp_path / "en-de.tsv").write_text("hard disk\tFestplatte\nTaxi\tTaxi\nlone\n")
    with pytest.raises(
        DataError, match=r"en-de.tsv holds no word of en to switch; set aside: .*term of several words: 1"
    ):
        train(Training(kind="word_switch", dictionaries=(str(tmp_path / "en-de.tsv"),)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("en-de.txt", "mouse Maus\n"),
        ("de-en.txt", "Maus mouse\n"),
        ("animals.en-de.tsv", "mouse\tMaus\nhard disk\tFestplatte\n"),
        ("animals.en-de.csv", "en,de\nmouse,Maus\n"),
    ],
)
def test_dictionaries_of_any_form_and_direction_switch_words(tmp_path: Path, name: str, content: str):
    (tmp_path / name).write_text(content)
    (tmp_path / "train-en.tsv").write_text("Mouse\tNOUN\n")
    training = Training(kind="word_switch", dictionaries=(str(tmp_path / name),), share=1.0)
    made = TrainingSet(POS, POS.find([tmp_path])["train"], "en", training, None, 1)
    assert made.switcher(1, 0)("mouse") == "Maus"


def test_sentences_of_one_text_cannot_be_switched(tmp_path: Path):
    for code in ("en", "de"):
        (tmp_path / f"train-{code}.tsv").write_text("word\tNOUN\n")
    with pytest.raises(
        DataError, match="pos has examples of one text, so no sentence of them can be switched; train on"
    ):
        list(TrainingSet(POS, POS.find([tmp_path])["train"], "en", Training(kind="sentence_switch"), None, 1).units())


def test_tagged_words_are_replaced_one_by_one_and_keep_their_tags(tmp_path: Path):
    (tmp_path / "train-en.tsv").write_text("cats\tNOUN\nsee\tVERB\n")
    (tmp_path / "en-de.txt").write_text("cats Katzen\n")
    training = Training(kind="word_switch", dictionaries=(str(tmp_path / "en-de.txt"),), share=1.0)
    made = TrainingSet(POS, POS.find([tmp_path])["train"], "en", training, None, 1)
    [(example,)] = made.units()
    assert POS.replace_words(example, made.switcher(1, 0)) == Sentence("0", ("Katzen", "see"), ("NOUN", "VERB"), "en")
