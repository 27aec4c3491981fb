"""The embedded world: a small deterministic set of languages to learn and test with, never a source of claims."""

from xalign_ray.demo.writer import write_demo

__all__ = ["write_demo"]
