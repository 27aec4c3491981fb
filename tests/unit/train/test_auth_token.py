"""The token of a user's clusters: made once, for this user alone, and only where Ray is given none."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from xalign_ray.errors import ConfigError
from xalign_ray.train.cluster_address import GIVEN, ensure_token


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", *GIVEN):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".ray" / "auth_token"


def test_a_token_is_written_for_its_user_alone_and_kept(token: Path) -> None:
    ensure_token()
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    first = token.read_text()
    assert len(first) == 64
    ensure_token()
    assert token.read_text() == first
    assert list(token.parent.iterdir()) == [token]


def test_processes_at_once_agree_on_one_token(token: Path) -> None:
    program = (
        "import sys; from xalign_ray.train.cluster_address import ensure_token; sys.stdin.read(1); ensure_token(); "
    )
    program += "from pathlib import Path; print((Path.home() / '.ray/auth_token').read_text())"
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in started:
        assert process.stdin
        process.stdin.write("x")
        process.stdin.flush()
    seen = {process.communicate(timeout=60)[0].strip() for process in started}
    assert seen == {token.read_text()}


@pytest.mark.parametrize("name", GIVEN)
def test_a_token_that_the_environment_gives_is_left_alone(
    token: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "given")
    ensure_token()
    assert not token.parent.exists()


def test_a_home_that_cannot_hold_it_is_named_with_a_way_out(token: Path) -> None:
    token.parent.write_text("a file")
    with pytest.raises(ConfigError, match=r"cannot be written to .*auth_token: .*Set RAY_AUTH_TOKEN to a long"):
        ensure_token()
