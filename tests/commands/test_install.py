"""The command `install`: what it installs where, and how it fails."""

import pytest

from helpers import environment

pytestmark = pytest.mark.usefixtures("machine")


def test_what_is_optional_is_installed_after_the_suite_where_it_is_asked_for(cli, monkeypatch):
    done = []
    for name in ("install", "install_optional"):
        monkeypatch.setattr(environment, name, lambda machine, name=name: done.append(name))
    assert cli("install")[0] == 0 and done == ["install"]
    assert cli("install", "--optional")[0] == 0 and done[1:] == ["install", "install_optional"]


@pytest.mark.parametrize(("flags", "gpu"), [([], None), (["--gpu"], "an NVIDIA GPU")])
def test_an_image_gets_the_set_for_a_gpu_where_none_is_visible(cli, monkeypatch, flags, gpu):
    asked = []
    monkeypatch.setattr(environment, "install", asked.append)
    assert cli("install", *flags)[0] == 0 and asked[0].gpu == gpu
    listed = environment.requirements(asked[0])
    assert ("vllm" in listed) == ("triton" in listed) == bool(gpu)
