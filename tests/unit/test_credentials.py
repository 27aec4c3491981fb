"""What is taken out of a tracking URI, what stays, and what the user is told."""

from __future__ import annotations

import os

import pytest

from xalign_ray.errors import ConfigError
from xalign_ray.work import credentials
from xalign_ray.work.credentials import hide_credentials, strip_credentials, with_credentials, without_credentials


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://ann:s3cret@host:5000/mlflow", "http://host:5000/mlflow"),
        ("https://ann:p@ss:w@host", "https://host"),
        ("https://ann:pa/ss@host/a", "https://host/a"),
        ("https://ann:pa?s#s@host/a", "https://host/a"),
        ("http://t0ken@host", "http://host"),
        ("http://host:5000/a?access_token=t0ken#x", "http://host:5000/a"),
        ("http://ann:s3cret@[::1]:5000", "http://[::1]:5000"),
        ("postgresql://ann:s3cret@host:5432/mlflow", "postgresql://ann@host:5432/mlflow"),
        ("postgresql+psycopg2://ann:pa/s?s@host/m?sslmode=require", "postgresql+psycopg2://ann@host/m?sslmode=require"),
        (
            "postgresql://host/m?user=ann&password=s3cret&sslmode=require",
            "postgresql://host/m?user=ann&sslmode=require",
        ),
        ("postgresql://ann@host/m?password=s3cret&sslpassword=s3cret", "postgresql://ann@host/m"),
        (
            "mysql+pymysql://host/m?passwd=s3cret&ssl_key_password=s3cret&charset=utf8",
            "mysql+pymysql://host/m?charset=utf8",
        ),
        ("mysql+pymysql://ann@host/m?ssl_key=a.pem&passwd=s3cret", "mysql+pymysql://ann@host/m?ssl_key=a.pem"),
    ],
)
def test_credentials_are_taken_out(given: str, shown: str) -> None:
    assert strip_credentials(given) == shown
    assert strip_credentials(shown) == shown


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite",
        "off",
        "sqlite:///a@b:c/mlflow.db",
        "http://host:5000",
        "http://host:5000/@ann/mlflow",
        "http://[::1]:5000/a",
        "postgresql://ann@host:5432/m?sslkey=/a.pem&passfile=/b",
        "databricks://profile",
        "databricks",
    ],
)
def test_a_uri_without_credentials_stays_as_it_is(uri: str) -> None:
    assert without_credentials(uri) == uri
    assert with_credentials(uri) == uri


def test_the_user_is_told_once_and_who_connects_has_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_kept", {})
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "")
    for _ in range(3):
        assert without_credentials("http://ann:s3cret@host:5000") == "http://host:5000"
    # MLflow reads a server's from the environment, and prints the address that it is given.
    assert with_credentials("http://host:5000") == "http://host:5000"
    assert (os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]) == ("ann", "s3cret")
    assert capsys.readouterr().err == (
        "The credentials in http://host:5000 are used now and written nowhere. Next time give them by "
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in the environment.\n"
    )
    assert hide_credentials("GET http://ann:s3cret@host:5000/api, then x://u:pw@h") == (
        "GET http://host:5000/api, then x://***@h"
    )


@pytest.mark.parametrize("given", ["http://t0ken@host:5000", "http://host:5000?access_token=t0ken"])
def test_a_token_goes_where_mlflow_looks_for_it(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr(credentials, "_kept", {})
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "")
    without_credentials(given)
    assert os.environ["MLFLOW_TRACKING_TOKEN"] == "t0ken"


def test_a_database_is_opened_with_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_kept", {})
    given = "postgresql://ann:s3cret@host/m"
    assert with_credentials(without_credentials(given)) == given


def test_an_error_never_shows_a_password() -> None:
    assert str(ConfigError("--set track.mlfow=http://ann:s3cret@host: no such key.")) == (
        "--set track.mlfow=http://***@host: no such key."
    )
