"""The command `install`: a machine with a GPU, or `--gpu`, gets other packages than one without."""

import pytest

from helpers import environment

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(("flags", "gpu"), [([], None), (["--gpu"], "an NVIDIA GPU")])
def test_gpu_installs_for_a_gpu_even_if_none_is_visible(cli, monkeypatch, flags, gpu):
    asked = []
    monkeypatch.setattr(environment, "install", asked.append)
    assert cli("install", *flags)[0] == 0 and asked[0].gpu == gpu
    listed = environment.requirements(asked[0])
    assert ("vllm" in listed) == ("triton" in listed) == bool(gpu)
