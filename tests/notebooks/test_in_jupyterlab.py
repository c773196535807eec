"""The notebooks in JupyterLab, in a real browser: `make lab`, folded completions and menus."""

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
FRONT = ".jp-NotebookPanel:not(.lm-mod-hidden)"  # the tab in front

# As many cells as the status bar says: those out of view are made when the browser has time.
WHOLE = """front => {
  const said = document.querySelector("#jp-main-statusbar").innerText.match(/Cell \\d+\\/(\\d+)/);
  return said && document.querySelectorAll(`${front} .jp-Cell`).length === Number(said[1]);
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """What `make lab` says to open, in a copy of the project; it ends with all its kernels."""
    folder = tmp_path_factory.mktemp("checkout")
    notebooks = PROJECT / "notebooks"
    shutil.copytree(notebooks, folder / "notebooks", ignore=shutil.ignore_patterns(".*"))
    shutil.copy(PROJECT / "Makefile", folder)
    (folder / ".venv").symlink_to(sys.prefix)
    # The set-up is taken as done: what it would install is what runs this.
    command = ["make", "--old-file", ".venv/.ready", "lab", "ARGS=--no-browser --allow-root"]
    # nobody's settings are read or changed
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    with pytest.MonkeyPatch.context() as patch, (folder / "lab.log").open("w+") as log:
        patch.setenv("GRPO_RUNS_DIR", str(folder / "runs"))
        for name in own:
            patch.setenv(name, str(folder / name.lower()))
        checkpoint.fetch("demo")
        options = {"cwd": folder, "env": os.environ, "start_new_session": True}
        served = subprocess.Popen(command, stdout=log, stderr=log, **options)
        said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", said)):
            assert served.poll() is None, said
            time.sleep(0.1)
            said = (folder / "lab.log").read_text(encoding="utf-8")
        yield found[0]
        os.killpg(served.pid, signal.SIGTERM)
        served.wait(timeout=HANGS)
        assert "Traceback" not in (folder / "lab.log").read_text(encoding="utf-8")


@pytest.fixture
def page(address):
    """JupyterLab in a tab of the browser, whose console has nothing to complain of at the end."""
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-sync"]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=options)
        page, errors = browser.new_page(), []
        page.set_default_timeout(1000 * HANGS)
        page.on("console", lambda said: said.type == "error" and errors.append(said.text))
        page.on("pageerror", lambda error: errors.append(f"uncaught: {error}"))
        page.goto(address)
        page.get_by_role("button", name="No", exact=True).click()  # thanks, no news
        yield page
        browser.close()
    assert errors == []


def test_04_unfolds_completions_without_a_kernel_and_has_menus_with_one(page):
    front, status = page.locator(FRONT), page.locator("#jp-main-statusbar")
    page.locator(".jp-DirListing-item[title^='Name: 04_']").dblclick()
    status.get_by_text("04_").wait_for()
    status.get_by_text("| Idle").wait_for()
    page.wait_for_function(WHOLE, arg=FRONT)
    folded = front.locator("details", has_text="step 1:")
    table = folded.locator("table").first
    assert not table.is_visible()
    folded.locator("summary").click()
    assert table.is_visible() and "<think>" in table.inner_text()

    page.locator(".lm-MenuBar-item", has_text=re.compile("^Run$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Run All Cells$")).click()
    waiting = front.locator(".jp-InputPrompt", has_text="[*]:")
    waiting.first.wait_for()
    sync_api.expect(waiting).to_have_count(0, timeout=1000 * HANGS)
    status.get_by_text("| Idle").wait_for()
    errors = "[data-mime-type='application/vnd.jupyter.error'], [data-mime-type$='.stderr']"
    assert front.locator(errors).all_inner_texts() == []

    menus = front.locator(".jp-OutputArea-output", has=page.get_by_role("slider"))
    shown, question = menus.locator("table"), menus.locator("select")
    first = shown.inner_text()
    menus.get_by_role("slider").press("End")
    menus.locator(".widget-readout", has_text="32").wait_for()
    sync_api.expect(shown).not_to_have_text(first, timeout=1000 * HANGS)
    # the kernel has listed the questions of this step: it would choose the first once more
    status.get_by_text("| Idle").wait_for()
    question.select_option(index=1)
    asked = question.locator("option").nth(1).inner_text()
    menus.locator("b", has_text=asked).wait_for()

    front.locator("summary", has_text="the rules on A").click()
    front.get_by_text("critical (mode_collapse)").wait_for()
