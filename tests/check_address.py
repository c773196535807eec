"""The project's address is one constant, `Repository` in pyproject.toml; this compares its copies
with it, and changes all.

    python tests/check_address.py                    # prints a sentence per problem; nothing where
    all is well python tests/check_address.py --set ADDRESS      # https://github.com/…: the
    constant, and every copy of it

The notebooks hold copies because their first cell clones the project before anything of it is
there; links to Colab, Kaggle, Binder and Codespaces hold others. Where the commit is tagged as a
release, the place holder OWNER is a problem too. Standard library only.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
CONSTANT = "pyproject.toml"
HOLDERS = (
    "CITATION.cff",
    "docs/ways-in.md",
    *(f"notebooks/{path.name}" for path in (PROJECT / "notebooks").glob("*.ipynb")),
)
_ADDRESS = re.compile(r"https://github\.com/(\w[\w-]*/(?!\.\.?$)[\w.-]+)", re.ASCII)
_NAMES = {"grpo-notebooks"}  # of the repository, whoever owns it
_TEXT = (".md", ".ipynb", ".toml", ".cff", ".yml", ".yaml", ".json", ".py", ".sh")


def constant() -> str:
    """owner/name of the repository.

    ValueError where the constant is no address on GitHub, which the links need.
    """
    address = tomllib.loads((PROJECT / CONSTANT).read_text(encoding="utf-8"))["project"]["urls"][
        "Repository"
    ]
    if not (match := _ADDRESS.fullmatch(address)):
        raise ValueError(
            f"{CONSTANT}: Repository is {address!r}, and must be https://github.com/OWNER/NAME, "
            "without .git."
        )
    return match[1]


def copies(slug: str) -> re.Pattern:
    """What finds this project's own links: the host, as GitHub, Colab, Binder and Codespaces write
    it, and owner/name.
    """
    names = "|".join(re.escape(name) for name in {slug.partition("/")[2], *_NAMES})
    return re.compile(
        rf"((?:github\.com|/github|/gh|codespaces\.new)/)([\w.-]+/(?:{names}))(?![\w-])"
    )


def tracked() -> list[Path]:
    """The text files under version control that may hold a link; in tests/ there are addresses of
    nobody.
    """
    names = [
        name
        for name in _git("ls-files", "-z").split("\0")
        if name.endswith(_TEXT) and not name.startswith("tests/")
    ]
    return [PROJECT / name for name in names if (PROJECT / name).is_file()]


def problems() -> list[str]:
    """Which copies differ from the constant, which files lack one, and a place holder in a release;
    a sentence each.
    """
    slug = constant()
    pattern, found, holding = copies(slug), [], set()
    for path in tracked():
        name = path.relative_to(PROJECT).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for _, copy in pattern.findall(line):
                holding.add(name)
                if copy != slug:
                    found.append(f"{name}:{number}: {copy} is not {slug}, as {CONSTANT} has it.")
    found += [
        f"{name} does not say where the project is: https://github.com/{slug}."
        for name in HOLDERS
        if name not in holding
    ]
    if found:
        found.append(f"mend with: python tests/check_address.py --set https://github.com/{slug}")
    releases = [tag for tag in _git("tag", "--points-at", "HEAD").split() if tag.startswith("v")]
    if releases and slug.startswith("OWNER/"):
        found.append(
            f"{releases[0]} is a release, and the address is still {slug}, which nobody can "
            "clone: --set it, commit, tag anew."
        )
    return found


def set_address(address: str) -> int:
    """Write an address into the constant and all copies; returns the number of files changed.

    ValueError for another host.
    """
    match = _ADDRESS.fullmatch(address.removesuffix("/").removesuffix(".git"))
    if not match:
        raise ValueError(
            f"--set {address}: give https://github.com/OWNER/NAME; Colab, Binder and Codespaces "
            "open no other."
        )
    pattern, changed = copies(constant()), 0
    for path in tracked():
        text = path.read_bytes().decode("utf-8")  # bytes, so that no line end changes
        if (new := pattern.sub(rf"\g<1>{match[1]}", text)) != text:
            path.write_bytes(new.encode("utf-8"))
            changed += 1
    return changed


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout


def main() -> int:
    """The exit code: 1 where there is a problem, after all are printed."""
    parser = argparse.ArgumentParser(
        description="Compare the copies of the project's address with the constant, or set all."
    )
    parser.add_argument("--set", metavar="ADDRESS", help="https://github.com/OWNER/NAME")
    given = parser.parse_args().set
    try:
        if given:
            print(f"{set_address(given)} files changed")
        found = problems()
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        found = [f"error: {error}"]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
