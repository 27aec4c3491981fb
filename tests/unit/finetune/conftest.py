"""The tiny BERT of tests/unit/tasks, which fine-tuning opens too."""

from tests.unit.tasks.conftest import make_bert

__all__ = ["make_bert"]
