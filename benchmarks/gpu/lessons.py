"""The lessons 06, 07, 08 (one seed) and 09, side by side, each a process; without vLLM."""

import subprocess
import sys
import tarfile
import time

from benchmarks.gpu import common
from helpers import PROJECT
from helpers.runs import runs_folder

SECONDS = 140  # for all of them; the part has a few more to write what came of them
GIVEN = {
    "06": ["-p", "run=demo"],
    "07": ["-p", "engine=transformers"],
    "08": ["-p", "run=demo", "-p", "seeds=[1]"],
    "09": ["-p", "engine=transformers"],
}
QUICK = {  # in a rehearsal
    "06": ["-p", "max_steps=2", "-p", "trial_steps=2", "-p", "holdout_questions=8"],
}


def measure(result: common.Result) -> None:
    """Begin all, and note each as it ends. What has not ended in time is ended."""
    if not (runs_folder() / "demo").exists():
        with tarfile.open(PROJECT / "notebooks" / "data" / "demo.tar.xz") as packed:
            packed.extractall(runs_folder(), filter="data")
    began = time.monotonic()
    chosen = QUICK if result.rehearse else GIVEN
    running = {}
    for number, given in chosen.items():
        log = runs_folder() / "gpu-check" / f"lesson-{number}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "helpers", "run", "--only", number, *given]
        with log.open("w", encoding="utf-8") as written:
            running[number] = subprocess.Popen(
                command, cwd=PROJECT, stdout=written, stderr=subprocess.STDOUT
            )
    while running:
        late = time.monotonic() - began > SECONDS * (4 if result.rehearse else 1)
        for number, process in list(running.items()):
            code = process.poll()
            if code is None and late:
                process.kill()
                code = "stopped"
            if code is not None:
                del running[number]
                seconds = time.monotonic() - began
                result.found[number] = f"{'ran' if code == 0 else code}, {seconds:.0f} s"
                print(number, result.found[number], flush=True)
                result.expect(code == 0, f"notebook {number}: {code}; see lesson-{number}.log.")
        time.sleep(0.5)


if __name__ == "__main__":
    common.main(measure)
