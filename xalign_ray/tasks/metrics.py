"""Every metric of every task: its title, meaning, unit and direction. What scores, reports and documents all read."""

from __future__ import annotations

from dataclasses import dataclass, replace

SHARE, COSINE = "0 to 1", "-1 to 1"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a reader of a score must know.

    Attributes:
        title: for tables.
        meaning: in a sentence, without the unit.
        unit: SHARE, of things that came out right, or COSINE.
        higher_is_better: None for a cosine, which describes an encoder: neither end is better.
        of_tuned_head: whether a head was fine-tuned; `<name>_supervised` where it was tuned on the tested language.
    """

    title: str
    meaning: str
    unit: str = SHARE
    higher_is_better: bool | None = True
    of_tuned_head: bool = False


def _cosine(title: str, meaning: str) -> Metric:
    return Metric(title, meaning, COSINE, higher_is_better=None)


_PLAIN = {
    "tatoeba_accuracy": Metric("Sentence retrieval (Tatoeba)", "nearest-neighbour retrieval of the translation"),
    "tatoeba_accuracy_csls": Metric("Sentence retrieval (Tatoeba), CSLS", "the same by CSLS"),
    "tatoeba_accuracy_cls": Metric(
        "Sentence retrieval (Tatoeba), first token", "the same by cosine of the first token of each layer"
    ),
    "alignment_heldout": Metric(
        "Word translation, held-out pairs", "precision@1 by cosine over dictionary pairs that training never saw"
    ),
    "alignment_heldout_csls": Metric("Word translation, held-out pairs, CSLS", "the same by CSLS"),
    "alignment_trained": Metric(
        "Word translation, trained pairs", "precision@1 by cosine over dictionary pairs of training"
    ),
    "alignment_trained_csls": Metric("Word translation, trained pairs, CSLS", "the same by CSLS"),
    "alignment_untrained": Metric(
        "Word translation, languages without a trained dictionary",
        "precision@1 by cosine over pairs of languages of which training had no dictionary",
    ),
    "alignment_untrained_csls": Metric(
        "Word translation, languages without a trained dictionary, CSLS", "the same by CSLS"
    ),
    "cloze_accuracy": Metric(
        "Masked words beside their translation", "masked words predicted beside their English translation"
    ),
    "cloze_accuracy_alone": Metric("Masked words without it", "the same words predicted without it"),
    "pair_cosine": _cosine("Mean cosine of translations", "mean cosine of translated sentences, last layers"),
    "pair_cosine_random": _cosine(
        "Mean cosine of other sentences", "the same of sentences that do not translate each other"
    ),
    "mean_cosine_random": _cosine(
        "Mean cosine of random words", "mean cosine of random rows: near 1 means that the embeddings have collapsed"
    ),
}
_TUNED = {
    "pos_accuracy": ("Parts of speech", "part-of-speech tags right, fine-tuned on English only"),
    "pos_f1_runs": ("Parts of speech, F1 over runs (XTREME)", "F1 over runs of one tag, as XTREME scores them"),
    "ner_f1": ("Names (NER)", "F1 over names, read leniently as XTREME does"),
    "ner_f1_strict": ("Names (NER), strict IOB2", "F1 over names, strict IOB2"),
    "xnli_accuracy": ("Inference (XNLI)", "pairs whose inference was predicted right"),
    "pawsx_accuracy": ("Paraphrases (PAWS-X)", "pairs correctly said to be paraphrases or not"),
    "mldoc_accuracy": ("Topics of news (MLDoc)", "news texts whose topic was predicted right"),
    "mldoc_h_accuracy": ("Topics of headlines (MLDoc)", "headlines whose topic was predicted right"),
    "sib_accuracy": ("Topics of sentences (SIB-200)", "sentences whose topic was predicted right"),
    "mlqa_f1": ("Questions (MLQA), F1", "F1 over the tokens of answers, question and context in one language"),
    "mlqa_em": ("Questions (MLQA), exact match", "answers that match exactly, question and context in one language"),
    "mlqa_f1_gxlt": (
        "Questions in another language (MLQA), F1",
        "F1 over the tokens of answers, question and context in two languages",
    ),
    "mlqa_em_gxlt": (
        "Questions in another language (MLQA), exact match",
        "answers that match exactly, question and context in two languages",
    ),
}


def _zero_shot_and_supervised(name: str, title: str, meaning: str) -> dict[str, Metric]:
    zero_shot = Metric(title, meaning, of_tuned_head=True)
    own = replace(
        zero_shot,
        title=f"{title}, fine-tuned on the language itself",
        meaning="the same, fine-tuned on the tested language",
    )
    return {name: zero_shot, f"{name}_supervised": own}


METRICS: dict[str, Metric] = _PLAIN | {
    key: metric for name, said in _TUNED.items() for key, metric in _zero_shot_and_supervised(name, *said).items()
}
