"""Evaluations of an encoder, files by kind. One is registered by its line here, which help reads without torch."""

PROBES = {
    "tatoeba": "tatoeba:TATOEBA",
    "retrieval": "retrieval:RETRIEVAL",
    "flores": "sentence_benchmarks:FLORES",
    "bucc": "sentence_benchmarks:BUCC",
    "sts": "sentence_benchmarks:STS",
    "alignment": "probes:ALIGNMENT",
    "cloze": "cloze:CLOZE",
}
TUNED = {
    "pos": "tag_benchmarks:POS",
    "ner": "tag_benchmarks:NER",
    "xnli": "text_benchmarks:XNLI",
    "pawsx": "text_benchmarks:PAWSX",
    "mldoc": "text_benchmarks:MLDOC",
    "mldoc_h": "text_benchmarks:MLDOC_H",
    "sib": "text_benchmarks:SIB",
    "masakhanews": "text_benchmarks:MASAKHANEWS",
    "afrisenti": "text_benchmarks:AFRISENTI",
    "mlqa": "qa_benchmarks:MLQA",
    "xquad": "qa_benchmarks:XQUAD",
    "tydiqa": "qa_benchmarks:TYDIQA",
    "squad": "qa_benchmarks:SQUAD",
    "belebele": "multiple_choice:BELEBELE",
    "xcopa": "multiple_choice:XCOPA",
}
TUNED_TASK_NAMES = tuple(TUNED)
TASK_NAMES = (*PROBES, *TUNED)
"""The tasks by name: what `xalign evaluate --task` and `xalign tune` may be given; of mteb's, see `mteb_task`."""
