"""The notebooks in JupyterLab, in a real browser: `make lab`, the menus, and what is seen at two
widths and in the dark.
"""

import socket

import pandas as pd
import pytest
from browser import BROWSER, in_a_browser
from in_lab import HANGS, Page, Served, change

from helpers.commands import checkpoint
from helpers.runs import Run

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed: make optional"
)
pytestmark = [pytest.mark.slow, in_a_browser]
WIDTHS = (1280, 800)
PICTURES = {"01": 1, "03": 5, "04": 9}
SHORT = {'run = "demo"': 'run = "short"', "max_steps = None": "max_steps = 6"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One server for all tests, told to take a port that is taken: what it is, and that port.

    It ends with all its kernels.
    """
    folder = tmp_path_factory.mktemp("checkout")
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as taken:
        patch.setenv("GRPO_RUNS_DIR", str(folder / "runs"))
        checkpoint.fetch("demo")
        checkpoint.fetch("short", "02")
        served = Served(folder, "--allow-root", f"--port={taken.getsockname()[1]}")
        change(folder / "notebooks" / "03_grpo_training.ipynb", SHORT)
        try:
            yield served.start(), taken.getsockname()[1]
        finally:
            left = served.stop()
    assert left == [] and "Traceback" not in served.log


@pytest.fixture(scope="module")
def window(lab):
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu", "--disable-sync"]
        )
        yield Page(browser, lab[0].address)
        browser.close()


@pytest.fixture
def page(window, tmp_path):
    """JupyterLab, whose console has nothing to complain of at the end; the last thing seen lies in
    the test's folder.
    """
    yield window
    window.page.screenshot(path=tmp_path / "end.png")
    assert window.errors == []


def check_looks(page: Page, number: str) -> None:
    """At both widths all figures whole and no faint text; at the larger one nothing has to be
    scrolled sideways either.
    """
    for width in WIDTHS:
        seen = page.measured(width)
        assert len(seen["images"]) == PICTURES[number] and seen["faint"] == []
        assert all(image["whole"] and image["width"] >= 300 for image in seen["images"]), seen[
            "images"
        ]
        assert width < 1280 or seen["wide"] == []
    page.page.set_viewport_size({"width": 1280, "height": 800})


def test_a_port_that_is_taken_is_named_and_another_one_serves(lab):
    served, port = lab
    assert f":{port}/" not in served.address
    assert f"The port {port} is already in use, trying another port." in served.log


def test_01_runs_by_the_menu_from_the_first_cell_to_the_last(page):
    page.open("01")
    page.run_all()
    page.status("| Busy")
    page.until_done()
    last = page.front.locator(".jp-CodeCell").last
    last.scroll_into_view_if_needed()
    assert "next: 02_reward_functions.ipynb" in last.locator(".jp-OutputArea-output").inner_text()
    check_looks(page, "01")


def test_04_unfolds_completions_without_a_kernel_and_has_menus_with_one(page):
    page.open("04")
    folded = page.front.locator("details", has_text="step 1:")
    table = folded.locator("table").first
    assert not table.is_visible()
    folded.locator("summary").click()
    assert table.is_visible() and "<think>" in table.inner_text()

    page.run_all()
    page.until_done()
    menus = page.front.locator(".jp-OutputArea-output", has=page.page.get_by_role("slider"))
    shown, question = menus.locator("table"), menus.locator("select")
    first = shown.inner_text()
    menus.get_by_role("slider").press("End")
    menus.locator(".widget-readout", has_text="32").wait_for()
    sync_api.expect(shown).not_to_have_text(first, timeout=1000 * HANGS)
    # the kernel has listed the questions of this step: it would choose the first once more
    page.status("| Idle")
    question.select_option(index=1)
    asked = question.locator("option").nth(1).inner_text()
    menus.locator("b", has_text=asked).wait_for()

    page.front.locator("summary", has_text="the rules on A").click()
    page.front.get_by_text("critical (mode_collapse)").wait_for()
    check_looks(page, "04")
    page.theme("JupyterLab Dark")
    check_looks(page, "04")
    page.theme("JupyterLab Light")


def test_03_draws_one_curve_again_and_again_while_it_trains(page):
    page.open("03")
    drawn = "img[alt*='curves of this training']"
    committed = page.front.locator(drawn).get_attribute("src")
    page.keep_pictures(drawn)
    page.run_all()
    page.until_done()
    while_training = {one["source"] for one in page.pictures() if one["waiting"] > 1} - {committed}
    assert len(while_training) >= 2
    assert list(pd.read_csv(Run("short").folder / "metrics.csv")["step"]) == list(range(1, 7))
    check_looks(page, "03")
