"""`python -m tools.demo`: pack the finished run `demo` as notebooks/data/demo.tar.xz; `make demo`
executes it first. `python -m tarfile -e notebooks/data/demo.tar.xz runs` puts it in place.

Left out is what nobody needs after the training: checkpoints and executed copies.
"""

import argparse
import io
import tarfile

from helpers import PROJECT
from helpers.runs import Run, atomic_write, written_by

ARCHIVE = PROJECT / "notebooks" / "data" / "demo.tar.xz"


def main() -> None:
    """Pack the run, and print the size. The same run gives the same bytes.

    Raise FileNotFoundError if notebook 05 has not finished it.
    """
    run = Run("demo")
    run.require("merged")
    with atomic_write(ARCHIVE) as temporary, tarfile.open(temporary, "w:xz", preset=9) as archive:
        for path in sorted(path for path in run.folder.rglob("*") if path.is_file()):
            name = path.relative_to(run.folder).as_posix()
            if name != "manifest.json" and not written_by(name):
                continue
            content = path.read_bytes()
            # The kernels run in notebooks/, so from there the path is right in every checkout.
            if path.suffix in (".json", ".md", ".csv"):
                content = content.replace(PROJECT.as_posix().encode(), b"..")
            about = tarfile.TarInfo(f"demo/{name}")  # with the time 0 and nobody's name
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # --help runs nothing
    main()
