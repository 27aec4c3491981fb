"""Evaluations of an encoder, files by kind. One is registered by its line here, which help reads without torch."""

PROBES = {
    "tatoeba": "retrieval:TATOEBA",
    "retrieval": "retrieval:RETRIEVAL",
    "flores": "sentence_benchmarks:FLORES",
    "bucc": "sentence_benchmarks:BUCC",
    "sts": "sentence_benchmarks:STS",
    "alignment": "probes:ALIGNMENT",
    "cloze": "cloze:CLOZE",
}
TUNED = {
    "pos": "token_classification:POS",
    "ner": "token_classification:NER",
    "xnli": "text_classification:XNLI",
    "pawsx": "text_classification:PAWSX",
    "mldoc": "text_classification:MLDOC",
    "mldoc_h": "text_classification:MLDOC_H",
    "sib": "text_classification:SIB",
    "masakhanews": "text_classification:MASAKHANEWS",
    "afrisenti": "text_classification:AFRISENTI",
    "mlqa": "question_answering:MLQA",
    "xquad": "question_answering:XQUAD",
    "tydiqa": "question_answering:TYDIQA",
    "squad": "question_answering:SQUAD",
    "belebele": "multiple_choice:BELEBELE",
    "xcopa": "multiple_choice:XCOPA",
}
TUNED_TASK_NAMES = tuple(TUNED)
TASK_NAMES = (*PROBES, *TUNED)
"""The tasks by name: what `xalign evaluate --task` and `xalign tune` may be given; for mteb's, see `registry`."""
