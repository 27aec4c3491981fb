"""Two processes prepare the same data at the same time: one works, the other waits for it and takes what it made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.shards.prepared import Prepared
from xalign_ray.work.artifacts import MANIFEST

PREPARE = """
import sys
from pathlib import Path
from tests.unit.conftest import make_config, prepare_here
config = make_config(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read(1)
print(prepare_here(config).folder)
"""


def files(prepared: Prepared) -> dict[str, bytes]:
    found = (path for path in prepared.folder.rglob("*") if path.is_file())
    return {path.relative_to(prepared.folder).as_posix(): path.read_bytes() for path in found}


def test_two_prepares_at_once_make_the_folder_of_one(tmp_path: Path, prepared: Prepared) -> None:
    write_inputs(tmp_path)
    command = [sys.executable, "-c", PREPARE, str(tmp_path)]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for one in both:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
    for one in both:
        assert one.stdin
        one.stdin.write("x")
        one.stdin.flush()
    said = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    (told,) = {line for _, errors in said for line in errors.splitlines() if "is being written by" in line}
    assert told.endswith("; it is waited for.")
    made = prepare_here(make_config(tmp_path))
    assert str(made.folder) == said[0][0].strip()
    assert files(made) == files(prepared)
    assert MANIFEST in files(made)
