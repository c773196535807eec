"""The command `install`: what it installs where, and how it fails."""

import pytest

from helpers import environment

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(("flags", "gpu"), [([], None), (["--gpu"], "an NVIDIA GPU")])
def test_an_image_gets_the_set_for_a_gpu_where_none_is_visible(cli, monkeypatch, flags, gpu):
    asked = []
    monkeypatch.setattr(environment, "install", asked.append)
    assert cli("install", *flags)[0] == 0 and asked[0].gpu == gpu
    listed = environment.requirements(asked[0])
    assert ("vllm" in listed) == ("triton" in listed) == bool(gpu)
