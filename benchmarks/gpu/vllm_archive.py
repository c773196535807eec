"""Pack vLLM's Python for a GPU machine that has torch, no network, and no room for vLLM's wheel.

    python -m benchmarks.gpu.vllm_archive FOLDER

downloads the pinned wheel of vLLM (320 MB) and those of NEEDED, writes FOLDER/vllm.tar.xz, and
prints its size. What is left out is compiled: 600 MB of kernels. Stub
modules are in their place, so vLLM must be asked for kernels in Triton and for operators in
PyTorch: `ENGINE`. README.md in this folder says how the archive is used, and what is unknown.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from helpers import PROJECT

# extension modules that vLLM imports by name; an empty module takes the place of each
STUBS = ("_C", "_C_stable_libtorch", "_moe_C_stable_libtorch")
# sleeping needs this one, which allocates the memory that is given back
KEPT = "vllm/cumem_allocator.abi3.so"
# What importing the engine needs of PyPI beside torch and Transformers.
NEEDED = [
    *("msgspec", "cloudpickle", "blake3", "py-cpuinfo", "cachetools", "partial-json-parser"),
    *("prometheus-client", "pybase64", "cbor2", "compressed-tensors", "einops", "gguf"),
    *("sentencepiece", "tiktoken", "openai", "anthropic", "fastapi", "starlette", "lark"),
    *("python-json-logger", "setproctitle", "ijson"),
    # found by importing vLLM from the archive where only torch and Transformers were installed
    *("psutil", "pyzmq", "urllib3", "requests", "aiohttp", "multidict", "attrs", "yarl"),
    *("propcache", "aiohappyeyeballs", "aiosignal", "frozenlist", "openai-harmony", "httpx2"),
    *("sniffio", "pillow", "uvloop", "xgrammar", "apache-tvm-ffi", "llguidance", "protobuf"),
    *("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-semantic-conventions"),
    *("opentelemetry-proto", "opentelemetry-exporter-otlp-proto-common"),
    *("opentelemetry-exporter-otlp-proto-http", "googleapis-common-protos"),
]
# vLLM asks its kernels at import what they support: nothing
STUB = """import torch

library = torch.library.Library("_C", "FRAGMENT")
for name in (
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_group_gemm_supported",
    "cutlass_scaled_mm_supports_fp4",
):
    library.define(f"{name}(int capability) -> bool")
    library.impl(name, lambda capability: False, "CompositeExplicitAutograd")
"""
# how the engine is started, so that it asks for nothing that is left out
ENGINE = {
    "attention_backend": "TRITON_ATTN",
    "compilation_config": {"custom_ops": ["none"]},
    "enforce_eager": True,
}
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (17, 28, 31, 34, 35)]
_PLATFORMS += ["manylinux1_x86_64", "manylinux2014_x86_64"]


def main() -> None:
    """Download, pack, and try."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where vllm.tar.xz is written")
    parser.add_argument("--wheel", type=Path, help="vLLM's wheel, if it is here already")
    parser.add_argument("--python", default="3.12", help="of the GPU machine")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        site = Path(work) / "site"
        wheels = Path(work) / "wheels"
        download(NEEDED, wheels, args.python)
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(site)
        if args.wheel is None:
            download([pinned("vllm")], wheels, args.python)
            (args.wheel,) = wheels.glob("vllm-*.whl")
        unpack(args.wheel, site)
        args.folder.mkdir(parents=True, exist_ok=True)
        archive = args.folder / "vllm.tar.xz"
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(site, ".")
    print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")


def pinned(name: str) -> str:
    """Return a package as requirements.txt pins it."""
    text = (PROJECT / "requirements.txt").read_text(encoding="utf-8")
    return re.search(rf"^{name}==[\w.]+", text, re.M)[0]


def download(packages: list[str], folder: Path, python: str) -> None:
    """Download wheels of packages, without what they require, for the GPU machine."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--implementation", "cp", "-d", str(folder)]
    for abi in ("cp" + python.replace(".", ""), "abi3", "none"):
        command += ["--abi", abi]
    for platform in _PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, *packages], check=True)


def unpack(wheel: Path, site: Path) -> None:
    """Unpack what is kept of vLLM's wheel, and write the stubs."""
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            described = name.endswith((".dist-info/METADATA", ".dist-info/entry_points.txt"))
            if name.endswith(".py") or described or name == KEPT:
                files.extract(name, site)
    # the package refuses to be imported without its kernels; the engine only asks what it supports
    flash = site / "vllm" / "vllm_flash_attn" / "__init__.py"
    text = flash.read_text(encoding="utf-8")
    refusal = "if not (FA2_AVAILABLE or FA3_AVAILABLE):"
    if refusal not in text:
        raise ValueError(f"{flash.name} has changed: read it, and correct this script.")
    flash.write_text(text.replace(refusal, "if False:  # left out"), encoding="utf-8")
    for name in STUBS:
        (site / "vllm" / f"{name}.py").write_text(STUB if name == "_C_stable_libtorch" else "")


if __name__ == "__main__":
    main()
