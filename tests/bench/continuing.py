"""CPU seconds of a whole `xalign continue` against a script of sentence-transformers on the same pairs, in one run.

The script trains with MultipleNegativesRankingLoss and evaluates at its start and end. Both have 24 steps of 32 of
2,000 short pairs, and 200 test pairs. The encoder is multilingual-e5-small where XALIGN_MODELS has it, else a random
one of its size. `python continuing.py PAIRS ENCODER FOLDER` is the script.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from records import record
from start import XALIGN, cpu_seconds

PAIRS, TESTED, STEPS, PER_STEP = 2_000, 200, 24, 32
KINDS = {"no_ray": ["--no-ray"], "ray": []}


def measure() -> list[dict[str, Any]]:
    """The ratios, with and without Ray in training."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(os.environ.get("XALIGN_MODELS", "")) / "e5-small"
        encoder = given if given.is_dir() else _random_encoder(Path(folder))
        pairs = Path(folder, "pairs.en-de.tsv")
        _write_pairs(pairs, encoder)
        peer = sum(cpu_seconds([sys.executable, __file__, str(pairs), str(encoder), folder]).values())
        records = []
        common = ["--pairs", str(pairs), "--languages", "en,de", "--steps", str(STEPS)]
        common += ["--set", f"train.pairs_per_step={PER_STEP}"]
        for kind, options in KINDS.items():
            out = ["--out", f"{folder}/{kind}/run"]
            seconds = cpu_seconds([*XALIGN, "continue", str(encoder), *common, *out, *options])
            ours, dearest = sum(seconds.values()), sorted(seconds.items(), key=lambda one: -one[1])[:4]
            how = (
                f"{ours:.0f} CPU s of all processes of the command against {peer:.0f} of the peer's trainer "
                f"with its evaluator at start and end; {encoder.name}, {PAIRS:,} pairs, {STEPS} steps of {PER_STEP}; "
                f"most: {', '.join(f'{name[:30]} {used:.0f}' for name, used in dearest)}"
            )
            records.append(record(f"continue/sentence_transformers_ratio/{kind}", ours / peer, 1.5, how, "lower"))
        return records


def _write_pairs(path: Path, encoder: Path) -> None:
    """Of 4 to 12 words."""
    from transformers import AutoTokenizer

    words = _words_of(AutoTokenizer.from_pretrained(encoder))
    short = [pair for pair in _texts(words, 4 * PAIRS) if max(len(side.split()) for side in pair) <= 12]
    path.write_text("en\tde\n" + "".join(f"{one}\t{other}\n" for one, other in short[:PAIRS]), encoding="utf-8")


def _random_encoder(folder: Path) -> Path:
    """A folder with an untrained encoder of the size of multilingual-e5-small and a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(250_032))]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    shape = {"num_hidden_layers": 12, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
    BertModel(BertConfig(vocab_size=len(words), **shape)).save_pretrained(folder / "random-e5-small")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, mask_token="[MASK]").save_pretrained(
        folder / "random-e5-small"
    )
    return folder / "random-e5-small"


def _texts(vocabulary: list[str], count: int) -> list[tuple[str, str]]:
    """Pairs of sentences of 4 to 60 words, most of them short; a translation is about as long as its sentence."""
    random, made = np.random.default_rng(0), []
    for _ in range(count):
        length = int(np.clip(random.lognormal(2.8, 0.6), 4, 60))
        made.append(
            tuple(" ".join(random.choice(vocabulary, length + more)) for more in (0, int(random.integers(0, 4))))
        )
    return made


def _words_of(tokenizer: Any) -> list[str]:
    """Words of one piece each."""
    pieces = sorted(tokenizer.get_vocab())
    begin = "▁" if "▁" in pieces else "w"
    words = (piece.removeprefix("▁") for piece in pieces if piece.startswith(begin))
    return [word for word in words if word.isalnum() and word.isascii()][:5000]


def peer_script(pairs: Path, encoder: str, folder: Path) -> None:
    """Trains, evaluates before and after, and saves."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.models import Pooling, Transformer
    from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    torch.set_num_threads(1)
    rows = [line.split("\t") for line in pairs.read_text(encoding="utf-8").splitlines()[1:]]
    inside = Transformer(encoder)
    model = SentenceTransformer(modules=[inside, Pooling(inside.get_embedding_dimension())], device="cpu")
    evaluate = TranslationEvaluator(*map(list, zip(*rows[:TESTED], strict=True)))
    evaluate(model)
    asked = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "peer"), per_device_train_batch_size=PER_STEP, max_steps=STEPS, learning_rate=2e-5,
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    data = Dataset.from_dict(
        {"anchor": [one for one, _ in rows[TESTED:]], "positive": [two for _, two in rows[TESTED:]]}
    )
    SentenceTransformerTrainer(model, asked, data, loss=MultipleNegativesRankingLoss(model)).train()
    evaluate(model)
    model.save(str(folder / "peer" / "export"))


if __name__ == "__main__":
    peer_script(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
