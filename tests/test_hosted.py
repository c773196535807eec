"""Colab and Kaggle: tokens from their secrets, what the first cell says, and that nothing is done
twice.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from helpers import environment
from helpers.environment import set_up_hosted, tokens_from_secrets

SECRETS = {"HF_TOKEN": "hf_secret", "WANDB_API_KEY": "wandb_secret"}


@pytest.fixture
def secrets(monkeypatch):
    """A host with these secrets, under the modules that Colab and Kaggle provide."""
    for name in (*SECRETS, "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"):
        # First set: then what a test puts there is taken away again as well.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)

    def host(name: str, kept: dict[str, str]) -> None:
        def get(key: str) -> str:
            if key not in kept:
                raise LookupError(f"{key} is not there, or not open to this notebook")
            return kept[key]

        if name == "colab":
            monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab_test")
            module = ModuleType("google.colab")
            module.userdata = SimpleNamespace(get=get)
            monkeypatch.setitem(sys.modules, "google.colab", module)
            if "google" not in sys.modules:
                monkeypatch.setitem(sys.modules, "google", ModuleType("google"))
        else:
            monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
            module = ModuleType("kaggle_secrets")
            module.UserSecretsClient = lambda: SimpleNamespace(get_secret=get)
            monkeypatch.setitem(sys.modules, "kaggle_secrets", module)

    return host


def environ(name: str) -> str | None:
    return environment.os.environ.get(name)


@pytest.mark.parametrize("host", ["colab", "kaggle"])
def test_tokens_come_from_the_secrets_of_the_host(secrets, host):
    secrets(host, SECRETS)
    assert tokens_from_secrets() == ["HF_TOKEN", "WANDB_API_KEY"]
    assert {name: environ(name) for name in SECRETS} == SECRETS
    assert tokens_from_secrets() == [], "the second time they are there"


def test_a_secret_that_is_not_open_is_passed_over_and_a_token_that_is_set_stays(
    secrets, monkeypatch
):
    secrets("colab", {"WANDB_API_KEY": "k"})
    assert tokens_from_secrets() == ["WANDB_API_KEY"] and environ("HF_TOKEN") is None
    monkeypatch.setenv("HF_TOKEN", "mine")
    secrets("kaggle", SECRETS)
    assert tokens_from_secrets() == [] and environ("HF_TOKEN") == "mine"


def test_elsewhere_no_secret_is_looked_for(secrets):
    assert tokens_from_secrets() == []


def test_the_second_time_nothing_is_done_and_no_token_is_printed(secrets, monkeypatch, capsys):
    secrets("colab", SECRETS)
    ran = []
    monkeypatch.setattr(
        environment.subprocess, "run", lambda *command, **options: ran.append(command)
    )
    monkeypatch.setattr(environment, "mismatches", lambda machine: [])
    set_up_hosted()
    out = capsys.readouterr().out
    assert not ran and "everything is installed already" in out and "RESTART" not in out
    assert (
        "set from the secrets of this account: HF_TOKEN, WANDB_API_KEY" in out
        and "secret\n" not in out
        and "hf_" not in out
    )


def test_a_package_replaced_under_a_running_kernel_asks_for_a_restart(secrets, monkeypatch, capsys):
    installed = {"pytest": "1.0", "ruff": "1.0"}
    monkeypatch.setattr(environment, "installed_version", installed.get)
    monkeypatch.setattr(environment, "install", lambda: installed.update(pytest="2.0", ruff="2.0"))
    set_up_hosted()
    out = capsys.readouterr().out
    assert "RESTART NEEDED: pytest had been imported before" in out, "ruff has not"
    set_up_hosted()
    assert "RESTART" not in capsys.readouterr().out
