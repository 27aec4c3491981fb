"""Exported and fine-tuned folders under transformers 4.57 and 5 with their defaults: equal inputs and predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from tests.parity.stock import VERSIONS, run_stock
from tests.parity.test_export_elsewhere import FACTS, Prepared
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.demo import write_demo
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import MODEL, tune_task
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.export import export
from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.tasks.question_answering import Question
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.task_files import read_lines
from xalign_ray.tasks.text_classification import LabelledText
from xalign_ray.vocabulary.tokenizer import train_bpe
from xalign_ray.vocabulary.tokenizer_folder import save_tokenizer, vocabulary, wrap_tokenizer
from xalign_ray.work.artifacts import write_atomic
from xalign_ray.work.run_folder import PREDICTIONS

MLDOC, SIB = (TUNED_TASKS[name] for name in ("mldoc", "sib"))

LANGUAGES = ["en", "qdv"]
LENGTH = 160  # positions: more than the 128 pieces of most tasks' inputs
SHAPE = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
FAMILIES = {family: SHAPE | {"family": family} for family in ("bert", "xlm-r", "roberta", "modernbert", "eurobert")}
# Other families with languages: test_export_elsewhere.py; of ModernBERT and EuroBERT they are refused.
ENCODERS = FAMILIES | {"bert-languages": FAMILIES["bert"] | {"language_embeddings": True}}
# A task of each head and number of texts, on encoders of each way to frame a pair. transformers has no
# EuroBERT that answers questions.
TUNED = [
    *(("bert", task) for task in ("pos", "xnli", "sib", "mlqa")),
    *(("xlm-r", "xnli"), ("xlm-r", "mlqa")),
    *(("modernbert", "pos"), ("modernbert", "mlqa")),
    *(("eurobert", "xnli"), ("eurobert", "pos")),
]
NOT_IN_4 = "eurobert"
KINDS = {
    "AutoModelForSequenceClassification": "text",
    "AutoModelForTokenClassification": "tokens",
    "AutoModelForQuestionAnswering": "question",
}
SETTINGS = FineTuning(learning_rate=3e-3, num_train_epochs=1, max_train_samples=64, train_batch_size=8)
TEXTS = ["cats see dogs.", "the cats, see: (dogs)!", " ".join(["drivers fix bicycles"] * 200)]
SPOKEN = "drivers borrow fast bicycles"

EXPORTED = """
import json
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline
asked, saved = json.load(open("asked.json")), {}
for name in asked["folders"]:
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForMaskedLM.from_pretrained(name).eval()
    single = [tokenizer(text, truncation=True, return_tensors="pt") for text in asked["texts"]]
    pairs = [tokenizer(text, asked["texts"][0], truncation=True, return_tensors="pt") for text in asked["texts"]]
    with torch.no_grad():
        logits = [model(**inputs).logits[0].tolist() for inputs in (*single, *pairs)]
    fill = pipeline("fill-mask", name)
    saved[name] = {
        "logits": logits,
        "filled": fill(asked["spoken"].replace("fast", fill.tokenizer.mask_token))[0]["token"],
        "decoded": tokenizer.decode(tokenizer(asked["spoken"])["input_ids"], skip_special_tokens=True),
        "room": tokenizer.model_max_length,
    }
json.dump(saved, open(sys.argv[1], "w"))
"""

# A prediction for each example of a fine-tuned folder, by a pipeline where this version of transformers has one; of a
# text the probability of each class.
PREDICTING = """
import json
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, pipeline

def classify(folder, examples):
    pipe = pipeline("text-classification", folder)
    pairs = [dict(zip(("text", "text_pair"), texts)) for texts in examples]
    return [{one["label"]: one["score"] for one in said} for said in pipe(pairs, truncation=True, top_k=None)]

def tag(folder, examples):
    pipe, said = pipeline("token-classification", folder, ignore_labels=[]), []
    for words in examples:
        pieces, begin = pipe(" ".join(words)), 0
        tags = []
        for word in words:
            first = [one["entity"] for one in pieces if one["start"] <= begin < one["end"]]
            tags += first[:1] or ["cut off"]
            begin += len(word) + 1
        said.append(tags)
    return said

def answer(folder, examples):
    # The longest answer is XTREME's. No end of a word is moved, which a tokenizer's pieces do not know of.
    if transformers.__version__.startswith("4."):
        pipe = pipeline("question-answering", folder)
        asked = [dict(question=question, context=context) for question, context in examples]
        return [one["answer"] for one in pipe(asked, max_answer_len=30, align_to_words=False)]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, said = AutoModelForQuestionAnswering.from_pretrained(folder).eval(), []
    for question, context in examples:
        inputs = tokenizer(question, context, truncation="only_second", return_tensors="pt")
        offsets = tokenizer(question, context, truncation="only_second", return_offsets_mapping=True)["offset_mapping"]
        context_pieces = [place for place, side in enumerate(inputs.sequence_ids(0)) if side == 1]
        with torch.no_grad():
            output = model(**inputs)
        start, end = output.start_logits[0].tolist(), output.end_logits[0].tolist()
        spans = [(a, b) for a in context_pieces for b in context_pieces if a <= b < a + 30]
        best = max(spans, key=lambda span: start[span[0]] + end[span[1]])
        said.append(context[offsets[best[0]][0] : offsets[best[1]][1]])
    return said

answers = {"text": classify, "tokens": tag, "question": answer}
asked = json.load(open("asked.json"))
json.dump(
    {one["folder"]: answers[one["kind"]](one["folder"], one["examples"]) for one in asked}, open(sys.argv[1], "w")
)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded world, SIB's files made of its news, and texts and pairs that are too long for an input."""
    folder = tmp_path_factory.mktemp("world")
    write_demo(folder, sentences=200, parallel_sentences=20, retrieval_pairs=10)
    topics = dict(zip(MLDOC.classes, SIB.classes, strict=False))
    for code, language in (("eng_Latn", "en"), ("por_Latn", "qdv")):
        for split, name in (("train", "train.1000"), ("dev", "dev"), ("test", "test")):
            news = [line.split("\t", 1) for line in read_lines(folder / "mldoc" / f"{language}.{name}")[:60]]
            rows = [f"{number}\t{topics[label]}\t{text}" for number, (label, text) in enumerate(news)]
            write_atomic(folder / "sib" / code / f"{split}.tsv", "\n".join(["index_id\tcategory\ttext", *rows]))
    with (folder / "mldoc" / "en.test").open("a") as news, (folder / "xnli" / "test-en.tsv").open("a") as pairs:
        news.write(f"GCAT\t{TEXTS[2]}\n")
        pairs.write(
            f"{TEXTS[2]}\t{TEXTS[1]}\tneutral\n{TEXTS[1]}\t{TEXTS[2]}\tneutral\n{TEXTS[2]}\t{TEXTS[2]}\tneutral\n"
        )
    return folder


@pytest.fixture(scope="module")
def encoders(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported folder of an encoder away from its first weights, for each of ENCODERS."""
    root = tmp_path_factory.mktemp("encoders")
    text = [line for path in sorted((world / "wiki").rglob("*")) if path.is_file() for line in path.open()]
    tokenizer = wrap_tokenizer(train_bpe(BpeTokenizer(vocab_size=1500), lambda: text))
    save_tokenizer(tokenizer, root / "tokenizer")
    special = vocabulary(tokenizer)
    prepared = Prepared(
        languages=LANGUAGES, vocab_size=len(tokenizer), special=special, tokenizer_folder=root / "tokenizer"
    )
    for name, model in ENCODERS.items():
        torch.manual_seed(1)
        config = RunConfig.model_validate(
            {
                "data": {
                    "corpora": [{"format": "text", "language": code, "paths": ["x"]} for code in LANGUAGES],
                    "max_seq_length": LENGTH,
                },
                "model": model,
                "train": {"max_steps": 1, "global_batch_size": 1},
            }
        )
        encoder = build_encoder(config.model, prepared.vocab_size, LANGUAGES, LENGTH, special.pad)
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        state = {f"encoder.{key}": value for key, value in encoder.state_dict().items()}
        export(state, config, prepared, root / name, FACTS)
    return root


def opens(name: str, version: str) -> bool:
    """Whether a version of transformers has the classes of a family."""
    return version == "5" or not name.startswith(NOT_IN_4)


def ask(folder: Path, version: str, script: str) -> Any:
    """What a script makes of `asked.json` in a folder."""
    run_stock(version, script, f"said-{version}.json", cwd=folder)
    return json.loads((folder / f"said-{version}.json").read_text())


@pytest.fixture(scope="module", params=VERSIONS)
def opened(request: pytest.FixtureRequest, encoders: Path) -> dict[str, Any]:
    """What stock code computes from each exported folder."""
    names = [name for name in ENCODERS if opens(name, request.param)]
    asked = {"folders": names, "texts": TEXTS, "spoken": SPOKEN}
    (encoders / "asked.json").write_text(json.dumps(asked))
    return ask(encoders, request.param, EXPORTED)


@pytest.mark.parametrize("name", ENCODERS)
def test_stock_tokenizer_gives_the_model_our_inputs(encoders: Path, opened: dict[str, Any], name: str) -> None:
    """Single texts and pairs, one of them too long; a text without a language is in the first of the model's."""
    if name not in opened:
        assert name.startswith(NOT_IN_4)
        return
    encoder = Encoder.open(open_encoder(encoders / name), "cpu", AutoModelForMaskedLM)
    inputs, room = encoder.inputs, encoder.inputs.room(LENGTH)
    pieces = inputs.piece_texts(TEXTS)
    assert len(pieces[2]) > LENGTH
    features = [inputs.single(one[:room], "en") for one in pieces]
    if "languages" not in name:  # a language embedding is told to each side of a pair by its token types
        free = room - len(inputs.middle) - len(pieces[0])
        features += [inputs.pair(one[:free], pieces[0], ("en", "en")) for one in pieces]
    for one, theirs in zip(features, opened[name]["logits"], strict=False):
        (ours,) = encoder.forward([one], lambda output: output.logits)
        assert ours.shape == (len(theirs), len(theirs[0]))
        assert abs(ours - torch.tensor(theirs).numpy()).max() < 1e-4


@pytest.mark.parametrize("name", ENCODERS)
def test_stock_pipeline_fills_masks_and_decodes(encoders: Path, opened: dict[str, Any], name: str) -> None:
    if name not in opened:
        return  # see above
    encoder = Encoder.open(open_encoder(encoders / name), "cpu", AutoModelForMaskedLM)
    tokenizer = encoder.inputs.tokenizer
    ids = tokenizer(SPOKEN.replace("fast", tokenizer.mask_token), add_special_tokens=False)["input_ids"]
    place = 1 + ids.index(tokenizer.mask_token_id)
    (logits,) = encoder.forward([encoder.inputs.single(ids, "en")], lambda output: output.logits)
    assert opened[name]["filled"] == logits[place].argmax()
    assert opened[name]["decoded"] == SPOKEN
    assert opened[name]["room"] == LENGTH


@pytest.fixture(scope="module")
def tuned(world: Path, encoders: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Any]]]:
    """A fine-tuned folder for each of TUNED, and what each says of its task's test files in our own evaluation."""
    root = tmp_path_factory.mktemp("tuned")
    asked, ours = [], {}
    for family, name in TUNED:
        task, out = TUNED_TASKS[name], root / f"{family}-{name}"
        data = [world / name]
        languages = ["en", "pt" if name == "sib" else "qdv"]
        tune_task(task, str(encoders / family), data, out, languages, SETTINGS, device="cpu", keep_model=True)
        folder, examples, chosen_of = folder_of(family, name), [], {}
        ours[folder] = []
        for code in languages:
            predicted = [json.loads(line)["prediction"] for line in (out / PREDICTIONS / f"{code}.jsonl").open()]
            read = task.read(task.find(data)["test"][code], code)
            chosen = [*range(12), *range(len(read) - 3, len(read))]  # the last of English are the long ones
            chosen_of[code] = [read[place] for place in chosen]
            examples += map(parts, chosen_of[code])
            ours[folder] += [predicted[place] for place in chosen]
        if KINDS[task.head] == "text":
            ours[folder] = probabilities(task, out / MODEL, [one for code in languages for one in chosen_of[code]])
        asked.append({"family": family, "folder": folder, "kind": KINDS[task.head], "examples": examples})
    for version in VERSIONS:
        (root / f"asked-{version}.json").write_text(json.dumps([one for one in asked if opens(one["family"], version)]))
    return root, ours


def probabilities(task: Any, folder: Path, examples: list[Any]) -> list[dict[str, float]]:
    opened = Encoder.open(open_encoder(folder), "cpu", task.model_class)
    features = [one for (one,) in task.features(opened.inputs, examples, opened.classes)]
    found = opened.forward(features, lambda output: output.logits.softmax(-1))
    return [dict(zip(opened.classes, one.tolist(), strict=True)) for one in found]


def folder_of(family: str, name: str) -> str:
    return f"{family}-{name}/{MODEL}"


def parts(example: Any) -> Any:
    """What an example's prediction is made of."""
    if isinstance(example, Question):
        return example.question, example.context
    return example.texts if isinstance(example, LabelledText) else example.words


@pytest.fixture(scope="module", params=VERSIONS)
def predicted(request: pytest.FixtureRequest, tuned: tuple[Path, dict[str, list[Any]]]) -> dict[str, list[Any]]:
    (tuned[0] / f"asked-{request.param}.json").replace(tuned[0] / "asked.json")
    return ask(tuned[0], request.param, PREDICTING)


@pytest.mark.parametrize(("family", "name"), TUNED)
def test_stock_pipeline_predicts_what_our_evaluation_does(
    tuned: tuple[Path, dict[str, list[Any]]], predicted: dict[str, list[Any]], family: str, name: str
) -> None:
    folder = folder_of(family, name)
    if folder not in predicted:
        assert family == NOT_IN_4
        return
    ours, theirs = tuned[1][folder], predicted[folder]
    assert len({json.dumps(one) for one in ours}) > 1, "a model that says one thing of all cannot be told apart"
    if isinstance(ours[0], dict):
        assert theirs == [pytest.approx(one, abs=1e-5) for one in ours]
        return
    differing = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other]
    assert not differing, f"{len(differing)} of {len(ours)}: {differing[:3]}"
