"""A notebook in JupyterLab, in a real browser: what `make lab` opens and runs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from browser import BROWSER, in_a_browser

from helpers import PROJECT
from helpers.commands import checkpoint

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed: make optional"
)
pytestmark = [pytest.mark.slow, in_a_browser]
HANGS = 600  # seconds after which nothing will come any more, however busy the machine is


@pytest.fixture
def address(tmp_path, monkeypatch):
    """What `make lab` says to open, in a copy of the project; it ends with all its kernels."""
    notebooks = PROJECT / "notebooks"
    shutil.copytree(notebooks, tmp_path / "notebooks", ignore=shutil.ignore_patterns(".*"))
    shutil.copy(PROJECT / "Makefile", tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.setenv("GRPO_RUNS_DIR", str(tmp_path / "runs"))
    # nobody's settings are read or changed
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    checkpoint.fetch("demo")
    # The set-up is taken as done: what it would install is what runs this.
    command = ["make", "--old-file", ".venv/.ready", "lab", "ARGS=--no-browser --allow-root"]
    with (log := tmp_path / "lab.log").open("w") as file:
        served = subprocess.Popen(
            command, cwd=tmp_path, stdout=file, stderr=file, start_new_session=True
        )
    while not (found := re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", log.read_text())):
        assert served.poll() is None, log.read_text()
        time.sleep(0.1)
    yield found[0]
    os.killpg(served.pid, signal.SIGTERM)
    served.wait(timeout=HANGS)


def test_04_runs_whole_without_an_error(address):
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-sync"]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=options)
        page = browser.new_page()
        page.set_default_timeout(1000 * HANGS)
        page.goto(address)
        page.get_by_role("button", name="No", exact=True).click()  # thanks, no news
        page.locator(".jp-DirListing-item[title^='Name: 04_']").dblclick()
        page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()

        page.locator(".lm-MenuBar-item", has_text=re.compile("^Run$")).click()
        page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Run All Cells$")).click()
        front = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")  # the tab in front
        waiting = front.locator(".jp-InputPrompt", has_text="[*]:")
        waiting.first.wait_for()
        sync_api.expect(waiting).to_have_count(0, timeout=1000 * HANGS)
        stderr = "[data-mime-type='application/vnd.jupyter.error'], [data-mime-type$='.stderr']"
        assert front.locator(stderr).all_inner_texts() == []
        browser.close()
