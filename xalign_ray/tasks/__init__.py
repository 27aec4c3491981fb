"""Evaluations of an exported folder: one file a task. Their names stand here, where help finds them without torch."""

TUNED_TASK_NAMES = ("pos", "ner", "xnli", "pawsx", "mldoc", "mldoc_h", "sib", "mlqa")
TASK_NAMES = ("alignment", "cloze", "tatoeba", *TUNED_TASK_NAMES)
