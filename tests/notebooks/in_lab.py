"""JupyterLab as a person has it: the server of `make lab` on a copy of the notebooks, and a browser
to click and look in.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from helpers import PROJECT

HANGS = 600  # seconds after which nothing will come any more, however busy the machine is
FRONT = ".jp-NotebookPanel:not(.lm-mod-hidden)"  # the tab in front
# nobody's settings are read or changed
_OWN = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")

# As many cells as the status bar says: those out of view are made when the browser has time.
_WHOLE = """front => {
  const said = document.querySelector("#jp-main-statusbar").innerText.match(/Cell \\d+\\/(\\d+)/);
  return said && document.querySelectorAll(`${front} .jp-Cell`).length === Number(said[1]);
}"""

# From now on, the pictures that come to stand in a place: each with the number of cells that still
# wait.
_PICTURES = """([front, place]) => {
  window.pictures = [];
  new MutationObserver(() => {
    const source = document.querySelector(place)?.src;
    const waiting = [...document.querySelectorAll(`${front} .jp-InputPrompt`)].filter(one => one.textContent.includes('[*]'));
    if (source && source !== window.pictures.at(-1)?.source) window.pictures.push({source, waiting: waiting.length});
  }).observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ['src']});
}"""

# Of the outputs of the tab in front: pictures, what is wider than the page and scrolls sideways,
# and text too faint to read.
_MEASURE = """front => {
  const panel = document.querySelector(front), rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0.9) return color;
    }
    return [255, 255, 255];
  };
  const contrast = element => {  // WCAG 2.1, 1.4.3
    const [one, two] = [rgb(getComputedStyle(element).color), behind(element)].map(light).sort((a, b) => b - a);
    return (one + 0.05) / (two + 0.05);
  };
  const found = {images: [], wide: [], faint: []};
  for (const output of panel.querySelectorAll('.jp-OutputArea-output')) {
    const frame = output.getBoundingClientRect();
    if (output.scrollWidth > output.clientWidth + 1) found.wide.push(output.textContent.trim());
    for (const image of output.querySelectorAll('img')) {
      const box = image.getBoundingClientRect();
      const whole = image.naturalWidth > 0 && box.left >= frame.left - 1 && box.right <= frame.right + 1;
      found.images.push({alt: image.alt, whole, width: box.width});
    }
    for (const element of output.querySelectorAll('*')) {
      const own = [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
      if (own && element.checkVisibility() && contrast(element) < 4.5) found.faint.push(element.outerHTML);
    }
  }
  return found;
}"""


def change(path: Path, lines: dict[str, str]) -> None:
    """Put other lines into a notebook's code, in place of those that stand there once."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for line, other in lines.items():
        cells = [cell for cell in notebook["cells"] if f"{line}\n" in cell["source"]]
        assert len(cells) == 1, f"{path.name} has the line {line!r} in {len(cells)} cells"
        cells[0]["source"] = [
            f"{other}\n" if one == f"{line}\n" else one for one in cells[0]["source"]
        ]
    path.write_text(json.dumps(notebook), encoding="utf-8")


# --- The server -----------------------------------------------------------------------------------


class Served:
    """`make lab` in `folder`, a copy of the project; `log` is what it has said, `address` what it
    told to open.
    """

    def __init__(self, folder: Path, *arguments: str):
        self.folder, self._said = folder, folder / "lab.log"
        shutil.copytree(
            PROJECT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".*")
        )
        shutil.copy(PROJECT / "Makefile", folder)
        (folder / ".venv").symlink_to(sys.prefix)
        self._arguments = arguments

    def start(self) -> "Served":
        own = {name: str(self.folder / name.lower()) for name in _OWN}
        # The set-up is taken as done: what it would install is what runs this.
        command = [
            "make",
            "--old-file",
            ".venv/.ready",
            "lab",
            f"ARGS=--no-browser {' '.join(self._arguments)}",
        ]
        with self._said.open("w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | own,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    @property
    def log(self) -> str:
        return self._said.read_text(encoding="utf-8")

    @property
    def address(self) -> str:
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", self.log)):
            assert self._process.poll() is None, self.log
            time.sleep(0.1)
        return found[0]

    def stop(self) -> list[str]:
        """End the server, which ends its kernels; returns what of it did not end by itself and had
        to be killed.
        """
        ours = (
            psutil.Process(self._process.pid).children(recursive=True)
            if self._process.poll() is None
            else []
        )
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        _, left = psutil.wait_procs(ours, timeout=HANGS)
        named = []
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                named.append(" ".join(process.cmdline()))
                process.kill()
        self._process.wait(timeout=HANGS)
        return named


# --- What a person does and sees ------------------------------------------------------------------


class Page:
    """A tab of the browser with JupyterLab in it; `errors` is what its console had against it."""

    def __init__(self, browser, address: str):
        self.page = browser.new_page(viewport={"width": 1280, "height": 800})
        self.page.set_default_timeout(1000 * HANGS)
        self.errors: list[str] = []
        self.page.on(
            "console", lambda message: message.type == "error" and self.errors.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        self.address = address

    def open(self, number: str) -> None:
        """The notebook, by a double click on its name in the list of files; all its cells are
        there, and its kernel is idle.
        """
        if not self.page.url.startswith("http"):
            self.page.goto(self.address)
            self.page.get_by_role("button", name="No", exact=True).click()  # thanks, no news
        self.page.locator(f".jp-DirListing-item[title^='Name: {number}_']").dblclick()
        self.status(f"{number}_")
        self.status("| Idle")
        self.page.wait_for_function(_WHOLE, arg=FRONT)

    def status(self, told: str) -> None:
        """Until the status bar says that."""
        self.page.locator("#jp-main-statusbar").get_by_text(told).wait_for()

    @property
    def front(self):
        return self.page.locator(FRONT)

    def prompts(self) -> list[str]:
        """What stands before each code cell; folded ones show nothing there."""
        return self.front.locator(".jp-CodeCell .jp-InputPrompt").all_text_contents()

    def menu(self, first: str, *labels: str) -> None:
        """Click through the menus, by the words that stand there."""
        self.page.locator(".lm-MenuBar-item", has_text=re.compile(f"^{first}$")).click()
        for label in labels:
            self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{label}$")).click()

    def run_all(self) -> None:
        self.menu("Run", "Run All Cells")
        self.front.get_by_text("[*]:").first.wait_for()

    def until_done(self) -> None:
        """Until no cell waits any more.

        Each shown has its number then; else AssertionError with what the notebook says.
        """
        from playwright.sync_api import expect

        expect(self.front.locator(".jp-InputPrompt", has_text="[*]:")).to_have_count(
            0, timeout=1000 * HANGS
        )
        self.status("| Idle")
        numbers = [f"[{n + 1}]:" for n in range(len(self.prompts()))]
        said = self.front.locator(
            "[data-mime-type='application/vnd.jupyter.error'], [data-mime-type$='.stderr']"
        )
        shown = [
            prompt in (number, "") for prompt, number in zip(self.prompts(), numbers, strict=True)
        ]
        assert all(shown) and said.all_inner_texts() == [], self.prompts()

    def measured(self, width: int) -> dict:
        """The tab in front at a width of the window, in CSS pixels."""
        self.page.set_viewport_size({"width": width, "height": 800})
        return self.page.evaluate(_MEASURE, FRONT)

    def keep_pictures(self, place: str) -> None:
        """Note every picture that comes to stand in that place of the tab in front, for
        `pictures`.
        """
        self.page.evaluate(_PICTURES, [FRONT, place])

    def pictures(self) -> list[dict]:
        """The source of each, and how many cells waited when it came."""
        return self.page.evaluate("window.pictures")

    def theme(self, name: str) -> None:
        self.menu("Settings", "Theme", name)
        self.page.locator(f"body[data-jp-theme-name='{name}']").wait_for(state="attached")
