"""Generated stand-ins for the files and the encoder that the papers' recipes name: of their shapes, and tiny."""

from __future__ import annotations

import bz2
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM

from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import Corpus, DataConfig
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.vocabulary.tokenizer import train_bpe
from xalign_ray.vocabulary.tokenizer_folder import save_tokenizer, wrap_tokenizer

WORDS = 40  # of a language
PAIRS = 90  # of a parallel corpus: two of one pair of languages have more than CAP
CAP = 100  # pairs of two languages that are kept, in place of 250,000 and more
VOCABULARY = 300
SIZES = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}

PAGE = (
    "<page><title>{title}</title><ns>0</ns><id>{number}</id><revision><id>{number}</id><model>wikitext</model>"
    "<format>text/x-wiki</format><text>{text}</text></revision></page>"
)


def word(language: str, number: int) -> str:
    """Of a language; the n-th words of two languages translate each other."""
    return "".join(random.Random(f"{language} {number}").choices("abcdefghijklmnop", k=3 + number % 4))


def sentences(language: str, count: int, seed: str) -> Iterator[str]:
    """Of 4 to 30 words; another language has the translations under the same seed, word by word."""
    source = random.Random(seed)
    for _ in range(count):
        yield " ".join(word(language, source.randrange(WORDS)) for _ in range(source.randint(4, 30)))


def write_files(root: Path, data: DataConfig) -> None:
    """Every file that a recipe names and that is not there yet; of a glob one that it matches."""
    for corpus in data.corpora:
        for path in corpus.paths:
            _write(root / path.replace("*", "1"), lambda corpus=corpus: TEXTS[corpus.format](corpus))
    for pair in data.parallel:
        if all((root / path).exists() for path in pair.paths):
            continue
        texts = {code: list(sentences(code, PAIRS, Path(pair.paths[0]).stem)) for code in pair.languages}
        for path, lines in PAIR_FILES[pair.format](texts, pair.paths):
            _write(root / path, lambda lines=lines: _lines(lines))
    for dictionary in data.dictionaries:
        left, right = dictionary.languages
        held = dictionary.split == "held_out"
        numbers = range(WORDS // 2, WORDS) if held else range(WORDS // 2)
        entries = [f"{word(left, number)} {word(right, number)}" for number in numbers]
        for path in dictionary.paths:
            _write(root / path, lambda entries=entries: _lines(entries))


def _write(path: Path, make: Callable[[], bytes]) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make())


def _lines(lines: Iterator[str] | list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _dump(corpus: Corpus) -> bytes:
    code = corpus.language
    pages = [
        PAGE.format(title=word(code, n), number=n, text="\n\n".join(sentences(code, 3, f"{code} {n}")))
        for n in range(3)
    ]
    space = '<siteinfo><namespaces><namespace key="0" /></namespaces></siteinfo>'
    return bz2.compress(f"<mediawiki>{space}{''.join(pages)}</mediawiki>".encode())


PAIR_FILES: dict[str, Callable[[dict[str, list[str]], Sequence[str]], Iterator[tuple[str, list[str]]]]] = {
    "moses": lambda texts, paths: zip(paths, texts.values(), strict=True),
    "jsonl": lambda texts, paths: ((path, _objects(texts)) for path in paths),
}


def _objects(texts: dict[str, list[str]]) -> list[str]:
    """As translation2019zh has them."""
    rows = zip(texts["en"], texts["zh"], strict=True)
    return [json.dumps({"english": english, "chinese": chinese}) for english, chinese in rows]


TEXTS: dict[str, Callable[[Corpus], bytes]] = {
    "wikipedia": _dump,
    "text": lambda corpus: _lines(sentences(corpus.language, 60, "text")),
}


def write_encoder(folder: Path, data: DataConfig) -> None:
    """A masked language model with its tokenizer, in the place of mBERT, for these languages."""
    codes = sorted({code for pair in data.parallel for code in pair.languages} | {one.language for one in data.corpora})
    lines = [line for code in codes for line in sentences(code, 5, "vocabulary")]
    tokenizer = wrap_tokenizer(train_bpe(BpeTokenizer(vocab_size=VOCABULARY), lambda: iter(lines)))
    save_tokenizer(tokenizer, folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=512, pad_token_id=0, **SIZES)
    BertForMaskedLM(config).save_pretrained(folder)


def shrunk(recipe: str, root: Path, encoder: Path) -> list[str]:
    """Settings with which a recipe of the papers runs on these files: sizes are small, all else is as it was."""
    config = load_recipe(recipe).config
    settings = [f"data.root={root}", f"output={root / 'out'}", "track.mlflow=off", "checkpoint.async_save=false"]
    settings += [
        "parallel.workers=1",
        "parallel.gpus_per_worker=0",
        "train.eval_steps=0",
        "parallel.zero_stage=1",
        "train.torch_compile=false",
    ]
    if config.model.init_from:
        settings += [f"model.init_from={encoder}"]
    else:
        settings += [f"model.{key}={value}" for key, value in SIZES.items()]
    if config.data.tokenizer.kind == "folder":
        settings += [f"data.tokenizer.path={encoder}"]
    if config.data.tokenizer.kind == "bpe":
        settings += [f"data.tokenizer.vocab_size={VOCABULARY}"]
    if config.data.max_pairs:
        settings += [f"data.max_pairs={CAP}"]
    if config.train.global_batch_size:
        settings += ["train.global_batch_size=8"]
    return [*settings, *(f"objectives.{number}.queue_size=64" for number, one in enumerate(config.objectives)
                         if one.kind == "momentum_contrast")]  # fmt: skip
