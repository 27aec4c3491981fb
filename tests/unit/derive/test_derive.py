"""`data derive`: line for line, one vocabulary twice, dictionaries and parallel text of any share, plain refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.derive.changes import Sentence, invert, transliterate
from xalign_ray.derive.corpus import Derivation, write_derived
from xalign_ray.errors import ConfigError, DataError

WORDS = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]
REPEATED = 5


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """One hundred words, each ten times, and one that occurs once."""
    path = tmp_path / "en.txt"
    lines = [f"{' '.join(WORDS[start : start + 10])}. Twice {' '.join(WORDS[start : start + 10])}!"
             for start in range(0, 100, 10) for _ in range(REPEATED)]  # fmt: skip
    path.write_text("\n".join(["hapax", *lines]) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def pairs(path: Path) -> list[tuple[str, str]]:
    return [(left, right) for left, right in (line.split(" ") for line in read(path))]


def inverted(line: str) -> str:
    words = line.split()
    return " ".join(words[place] for place in invert(Sentence(tuple(words))))


def test_line_i_of_the_derived_text_is_derived_from_line_i(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], tmp_path / "out")
    natural, derived = (read(tmp_path / "out" / "text" / name) for name in ("en.txt", "en-x-inv.txt"))
    assert natural[:5] == ["hapax", "", "ak al am an ao ap aq ar as at .", "Twice ak al am an ao ap aq ar as at !", ""]
    assert derived == [" ".join(map(transliterate, inverted(line).split())) for line in natural]


@pytest.mark.parametrize("source", ["text/en.txt", "text:text/*.txt", "link.txt", "parallel/en-en-x-inv.25.en"])
def test_a_text_that_is_read_is_not_written_over(text: Path, tmp_path: Path, source: str) -> None:
    for place in ("text/en.txt", "parallel/en-en-x-inv.25.en"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(text.read_bytes())
    (tmp_path / "link.txt").symlink_to("text/en.txt")
    form, colon, path = source.rpartition(":")
    with pytest.raises(ConfigError, match=rf" is read, and --out {tmp_path} would write over it\."):
        write_derived([f"{form}{colon}{tmp_path / path}"], tmp_path)
    kept = [(tmp_path / place).read_bytes() for place in ("text/en.txt", "parallel/en-en-x-inv.25.en")]
    assert kept == [text.read_bytes()] * 2


@pytest.mark.parametrize(
    ("changes", "code"), [(("trans",), "en-x-trans"), (("inv",), "en-x-inv-latn"), (("trans", "inv"), "en-x-inv")]
)
def test_changes_are_made_alone_or_together_in_any_order(
    changes: tuple[str, ...], code: str, text: Path, tmp_path: Path
) -> None:
    write_derived([str(text)], tmp_path / "out", Derivation(changes))
    natural, derived = (read(tmp_path / "out" / "text" / f"{name}.txt") for name in ("en", code))
    expected = [inverted(line) if "inv" in changes else line for line in natural]
    if "trans" in changes:
        expected = [" ".join(map(transliterate, line.split())) for line in expected]
    assert derived == expected


def test_the_vocabulary_holds_each_piece_twice_and_is_one_of_english_without_a_transliteration(
    text: Path, tmp_path: Path
) -> None:
    for changes in (("trans",), ("inv",)):
        write_derived([str(text)], tmp_path / changes[0], Derivation(changes, vocab_size=150))
    both, one = (
        Tokenizer.from_file(str(tmp_path / name / "tokenizer" / "tokenizer.json")) for name in ("trans", "inv")
    )
    assert one.get_vocab_size() == 150
    assert both.get_vocab_size() == 300
    natural, derived = (read(tmp_path / "trans" / "text" / f"{name}.txt") for name in ("en", "en-x-trans"))
    ids = [both.encode(" ".join(lines), add_special_tokens=False).ids for lines in (natural, derived)]
    mark = one.token_to_id("\u2581")
    assert ids[1] == [number if number == mark else number + 150 for number in ids[0]]
    assert not (tmp_path / "inv" / "dictionaries").exists()


def test_a_dictionary_of_any_share_holds_out_all_other_types(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], tmp_path / "out", Derivation(dictionary_shares=(0.25, 0.8), vocab_size=200))
    folder = tmp_path / "out" / "dictionaries"
    whole = pairs(folder / "en-en-x-inv.txt")
    types = {*WORDS, "twice", ".", "!"}
    assert types <= {word for word, _ in whole}
    assert all(right == transliterate(left) for left, right in whole)
    drawn = []
    for name, share in (("25", 0.25), ("80", 0.8)):
        trained, held_out = (pairs(folder / f"en-en-x-inv.{name}.{ending}") for ending in ("txt", "held_out.txt"))
        assert len(trained) == int(share * len(whole))
        assert [pair for pair in whole if pair in trained] == trained
        assert sorted(trained + held_out) == sorted(whole)
        drawn.append(set(trained))
    assert drawn[0] < drawn[1]


def test_pieces_that_stay_are_in_no_dictionary_and_stand_in_the_text(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], tmp_path / "out", Derivation(("trans",), overlap=0.5, vocab_size=200))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    copies = dict(pairs(tmp_path / "out" / "dictionaries" / "en-en-x-trans.txt"))
    assert manifest["types"] == len(copies)
    assert 20 < len([word for word in WORDS if word in copies]) < 80
    natural, derived = (read(tmp_path / "out" / "text" / f"{name}.txt") for name in ("en", "en-x-trans"))
    for line, written in zip(natural, derived, strict=True):
        for word, other in zip(line.lower().split(), written.split(), strict=True):
            assert word not in WORDS or other == copies.get(word, word)


def test_parallel_texts_are_nested_shares_of_the_sentences_without_blank_lines(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], tmp_path / "out", Derivation(parallel_shares=(0.25, 0.5, 1.0)))
    folder = tmp_path / "out" / "parallel"
    sides = [[read(folder / f"en-en-x-inv.{name}.{code}") for code in ("en", "en-x-inv")] for name in (25, 50, 100)]
    assert len(sides[2][0]) == 1 + 20 * REPEATED
    assert sides[2][0] == [line for line in read(tmp_path / "out" / "text" / "en.txt") if line]
    for left, right in sides:
        assert right == [" ".join(map(transliterate, inverted(line).split())) for line in left]
    assert 10 < len(sides[0][0]) < len(sides[1][0]) < 75
    counted = json.loads((tmp_path / "out" / "manifest.json").read_text())["pairs"]
    assert counted == {name: len(side[0]) for name, side in zip(("25", "50", "100"), sides, strict=True)}


def test_the_folder_is_a_corpus_with_a_tokenizer_dictionaries_and_parallel_text(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], tmp_path / "out", Derivation(vocab_size=200))
    write_inputs(tmp_path)
    parallel = "{format: moses, languages: [en, en-x-inv], paths: [out/parallel/en-en-x-inv.25.en, " \
               "out/parallel/en-en-x-inv.25.en-x-inv]}"  # fmt: skip
    dictionaries = [
        "{languages: [en, en-x-inv], paths: [out/dictionaries/en-en-x-inv.25.txt]}",
        "{languages: [en, en-x-inv], paths: [out/dictionaries/en-en-x-inv.25.held_out.txt], split: held_out}",
    ]
    corpora = [f"{{format: text, language: {code}, paths: [out/text/{code}.txt]}}" for code in ("en", "en-x-inv")]
    prepared = prepare_here(
        make_config(
            tmp_path, f"data.corpora=[{', '.join(corpora)}]", f"data.dictionaries=[{', '.join(dictionaries)}]",
            f"data.parallel=[{parallel}]", "streams=[{kind: masked_text}, {kind: masked_pairs}]",
            "data.max_seq_length=64", f"data.tokenizer={{kind: folder, path: {tmp_path / 'out' / 'tokenizer'}}}",
        )
    )  # fmt: skip
    assert prepared.manifest["bad_rows"] == {}
    counts, made = prepared.manifest["counts"], json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert counts["pairs"] == made["pairs"]["25"]
    assert "skipped: both sides are empty" not in counts
    assert made["types_in_dictionary"]["25"] == int(made["types"] / 4)


def test_the_same_seed_makes_the_same_bytes_and_another_seed_draws_others(text: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_derived([str(text)], tmp_path / name, Derivation(seed=seed, overlap=0.25))
    a, b, c = (json.loads((tmp_path / name / "manifest.json").read_text())["files"] for name in "abc")
    assert a == b
    assert {name for name in a if a[name] != c[name]} >= {
        "text/en-x-inv.txt", "parallel/en-en-x-inv.25.en", "dictionaries/en-en-x-inv.25.txt",
    }  # fmt: skip


def test_the_manifest_counts_what_was_made(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    counted = {key: value for key, value in manifest.items() if key.startswith("sentences")}
    assert counted == {"sentences": 1 + 20 * REPEATED, "sentences_dropped": 0, "sentences_moved": 20 * REPEATED}
    assert (manifest["language"], manifest["changes"]) == ("en-x-inv", ["inv", "trans"])
    assert manifest["words"] == 1 + 10 * REPEATED * 23
    assert not list((tmp_path / "out").glob(".*"))


def test_bad_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_bytes(b" ".join(word.encode() for word in WORDS) + b"\n\xff\n")
    write_derived([str(tmp_path / "en.txt")], tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["bad_rows"] == {"bytes are not UTF-8": 1}
    assert manifest["sentences"] == 1


def test_several_sources_follow_each_other_and_a_source_may_name_its_format(text: Path, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text('{"id": 1, "text": "Last one."}\n', encoding="utf-8")
    write_derived([f"text:{text}", f"jsonl:{tmp_path / 'more.jsonl'}"], tmp_path / "out")
    assert read(tmp_path / "out" / "text" / "en.txt")[-2:] == ["Last one .", ""]


def test_an_unfinished_folder_has_no_manifest(text: Path, tmp_path: Path) -> None:
    write_derived([str(text)], tmp_path / "out")
    text.write_text("a\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"types; too few to draw 0\.25 of them and hold out the others"):
        write_derived([str(text)], tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def conllu(*sentences: str) -> str:
    """CoNLL-U of sentences of `word/TAG/head/relation`."""
    blocks = []
    for sentence in sentences:
        rows = [item.split("/") for item in sentence.split()]
        lines = [f"{n}\t{w}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_" for n, (w, tag, head, relation)
                 in enumerate(rows, 1)]  # fmt: skip
        blocks.append("\n".join(lines) + "\n\n")
    return "".join(blocks)


OBJECT_LAST = "we/PRON/2/nsubj see/VERB/0/root {}/NOUN/2/obj ./PUNCT/2/punct"
OBJECT_FIRST = "nin/NOUN/2/obj vidas/VERB/0/root"
CROSSING = "a/DET/3/det b/VERB/0/root c/NOUN/2/obj d/ADJ/1/dep"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """English trees with a verb before its object, one of which is not projective, and a treebank with it behind."""
    sentences = [OBJECT_LAST.format(word) for word in WORDS]
    (tmp_path / "en.conllu").write_text(conllu(*sentences[:50], CROSSING, *sentences[50:]), encoding="utf-8")
    (tmp_path / "other.conllu").write_text(conllu(*[OBJECT_FIRST] * 2000), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("changes", [("syn",), ("syn", "trans"), ("syn", "inv"), ("inv", "syn")])
def test_the_word_order_of_a_treebank_goes_with_the_other_changes(changes: tuple[str, ...], trees: Path) -> None:
    write_derived([f"conllu:{trees / 'en.conllu'}"], trees / "out", Derivation(changes), [trees / "other.conllu"])
    manifest = json.loads((trees / "out" / "manifest.json").read_text())
    assert (manifest["sentences"], manifest["sentences_dropped"]) == (100, 1)
    natural, derived = (read(trees / "out" / "text" / f"{name}.txt") for name in ("en", manifest["language"]))
    assert len(natural) == len(derived)
    for line, moved in zip(natural, derived, strict=True):
        assert sorted(moved.split()) == sorted(map(transliterate, line.split()) if "trans" in changes else line.split())
        if line and "trans" not in changes:
            verb, thing = moved.split().index("see"), moved.split().index(line.split()[2])
            assert (thing < verb) == (changes[-1] == "syn"), "the last change decides"
            assert moved.endswith(".")


def test_a_word_order_needs_a_treebank_and_trees(text: Path, trees: Path) -> None:
    syn, treebank = Derivation(("syn",)), [trees / "other.conllu"]
    for how, given in ((syn, []), (Derivation(), treebank)):
        with pytest.raises(ConfigError, match="`syn` in --changes and --treebank go together"):
            write_derived([str(text)], trees / "out", how, given)
    with pytest.raises(ConfigError, match="`syn` needs dependency trees; parse the text and give conllu:PATH"):
        write_derived([str(text)], trees / "out", syn, treebank)
    (trees / "train-en.tsv").write_text("a\tNOUN\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"parse its sentences into train-en\.tsv\.conllu next to it"):
        write_derived([f"conllu:{trees / 'en.conllu'}"], trees / "out", syn, treebank, pos=[trees / "train-en.tsv"])
    (trees / "one.conllu").write_text(conllu(CROSSING), encoding="utf-8")
    with pytest.raises(DataError, match="No sentence is left of 1: `syn` takes projective trees"):
        write_derived([f"conllu:{trees / 'one.conllu'}"], trees / "out", syn, treebank)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1\ta\t_\tX\t_\t_\t_\t_\t_\t_", "line 1: '_' is no head: a parsed file is needed."),
        ("1\ta\t_\tX\t_\t_\t2\tdep\t_\t_", "line 1: a head lies outside its sentence."),
        ("2\ta\t_\tX\t_\t_\t0\tdep\t_\t_", "line 1: not the word with number 1: '2 a _ X"),
        ("# nothing", " holds no sentence."),
    ],
)
def test_a_treebank_that_cannot_be_read_is_named(row: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.conllu").write_text(f"{row}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        write_derived(["conllu:x"], tmp_path / "out", Derivation(("syn",)), [tmp_path / "bad.conllu"])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        ("wikipeda:x.xml", ("inv",), "--from wikipeda:x.xml: unknown format 'wikipeda'. Did you mean 'wikipedia'? "
         "Known here: text, jsonl, wikipedia, conllu."),
        ("moses:x.en", ("inv",), "--from moses:x.en: unknown format 'moses'. Known here: text, jsonl, wikipedia, "
         "conllu."),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_is_refused(
    source: str, changes: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        write_derived([source], tmp_path / "out", Derivation(changes))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Derivation(dictionary_shares=(0.2, 1.0)), "--dictionary-share is 1; it must be above 0 and below 1"),
        (Derivation(parallel_shares=(0.0,)), "--parallel-share is 0; it must be above 0 and at most 1."),
        (Derivation(overlap=1.0), "--overlap is 1; it is a share of the vocabulary, from 0 to below 1."),
        (Derivation(("inv",), overlap=0.25), "--overlap is of the vocabulary that `trans` copies; add trans to"),
    ],
)
def test_shares_that_cannot_be_are_refused(how: Derivation, message: str, text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        write_derived([str(text)], tmp_path / "out", how)
    assert str(caught.value).startswith(message)


def test_a_missing_text_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt does not exist"):
        write_derived([str(tmp_path / "nothing.txt")], tmp_path / "out")
    assert not (tmp_path / "out").exists()
