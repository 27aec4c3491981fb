"""Evaluations of an encoder, a file each. One is registered by its line here, which help reads without torch."""

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
    "pos": "pos:POS",
    "ner": "ner:NER",
    "xnli": "xnli:XNLI",
    "pawsx": "pawsx:PAWSX",
    "mldoc": "mldoc:MLDOC",
    "mldoc_h": "mldoc:MLDOC_H",
    "sib": "sib:SIB",
    "masakhanews": "masakhanews:MASAKHANEWS",
    "afrisenti": "afrisenti:AFRISENTI",
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
