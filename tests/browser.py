"""A written page in a real browser: what it says on the console, and how large its parts are at a
given width.
"""

import html
import json
import re
import subprocess

from needed import program

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
]

# The page in frames of both widths (a window itself cannot be as narrow as a phone), and what is
# measured in each.
FRAMES = """<!DOCTYPE html><body>%s<pre id="measured"></pre><script>
const box = element => {
  const r = element.getBoundingClientRect();
  return [r.left, r.top, r.right, r.bottom];
};
const size = (view, element) => parseFloat(view.getComputedStyle(element).fontSize);
const measure = frame => {
  const page = frame.contentDocument, view = frame.contentWindow, width = view.innerWidth;
  const figures = [...page.querySelectorAll("figure svg")].map(svg => {
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const texts = [...svg.querySelectorAll("text")];
    const options = {opacityProperty: true, visibilityProperty: true};
    return {box: box(svg), visible: svg.checkVisibility(options),
      text: Math.min(...texts.map(text => size(view, text) * scale)), texts: texts.map(box)};
  });
  const all = [...page.body.querySelectorAll("*")];
  const free = all.filter(element => !element.closest(".scroll") && !element.closest("svg"));
  const root = page.documentElement;
  return {width, height: root.scrollHeight, scroll: root.scrollWidth, figures,
    wide: free.filter(element => element.getBoundingClientRect().right > width + 0.5)
      .map(element => element.outerHTML),
    tables: [...page.querySelectorAll("table")].map(table => table.closest(".scroll") !== null),
    text: Math.min(
      ...free.filter(element => element.innerText).map(element => size(view, element)))};
};
addEventListener("load", () => document.getElementById("measured").textContent =
  JSON.stringify([...document.querySelectorAll("iframe")].map(measure)));
</script></body>"""


def browse(page, profile, *options) -> tuple[str, list[str]]:
    """Load a file or an address in headless Chromium; returns standard output and what the page
    wrote to the console.
    """
    command = [
        program("chromium"),
        *OPTIONS,
        f"--user-data-dir={profile}",
        *options,
        page if isinstance(page, str) else page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def check_in_a_browser(path, tmp_path, figures: int = 7) -> None:
    """No console message; at both widths nothing wider than the page, every figure inside it, and
    text that can be read.
    """
    widths, source = (1280, 390), html.escape(path.read_text(encoding="utf-8"))
    frames = "".join(
        f'<iframe style="border:0" width="{width}" height="800" srcdoc="{source}"></iframe>'
        for width in widths
    )
    framed = tmp_path / "frames.html"
    framed.write_text(FRAMES % frames, encoding="utf-8")
    dumped, console = browse(framed, tmp_path / "profile", "--dump-dom")
    assert console == []
    measured = re.search(r'<pre id="measured">(.*?)</pre>', dumped, re.DOTALL)[1]
    for page, width in zip(json.loads(html.unescape(measured)), widths, strict=True):
        assert page["width"] == width and page["scroll"] <= width and page["wide"] == []
        assert page["tables"] and all(page["tables"]) and page["text"] >= 12.5
        assert len(page["figures"]) == figures
        for figure in page["figures"]:
            left, top, right, bottom = figure["box"]
            assert (
                figure["visible"]
                and right - left >= 300
                and bottom - top >= 180
                and left >= 0
                and right <= width
            )
            assert figure["text"] >= 9
            assert all(left - 2 <= box[0] and box[2] <= right + 2 for box in figure["texts"])
