"""The slides that `slides` makes of the tagged cells: what is on them, what is not, that they fit;
and bad tags.
"""

import html
import json
import re

import nbformat
import pytest
from browser import browse

from tools import slides
from tools.slides import REVEAL, ROUTES, deck
from tools.teach import NOTEBOOKS

each_route = pytest.mark.parametrize("route", ROUTES)
COMMITTED = {
    path.name: nbformat.read(path, as_version=4) for path in sorted(NOTEBOOKS.glob("*.ipynb"))
}


def plain(text: str) -> str:
    """Words alone: no marks, and no addresses."""
    return " ".join(re.sub(r"\]\([^)]+\)|\W", " ", text).split())


# --- From the committed notebooks -----------------------------------------------------------------


@each_route
def test_what_stands_on_a_slide_stands_in_the_notebook_and_no_answer_does(route):
    sources = [cell.source for notebook in COMMITTED.values() for cell in notebook.cells]
    words = plain(" ".join(sources))
    for cell in deck(route).cells[1:-1]:
        if cell.cell_type == "code":
            assert cell.source in sources
            assert "Right: " not in json.dumps(cell.outputs), "the answer to an exercise"
            assert all(output.get("name") != "stderr" for output in cell.outputs)
        else:
            assert all(plain(part) in words for part in cell.source.split("\n\n"))
            written = re.sub(r"`[^`]*`", "", cell.source)
            assert "<details>" not in written and "$" not in written, "a hint, or mathematics"


# --- One file -------------------------------------------------------------------------------------


MEASURE = """<script>const measure = () => {
  if (!Reveal.isReady()) return setTimeout(measure, 20);
  const found = Reveal.getSlides().map((slide, number) => {
    Reveal.slide(number);
    while (Reveal.availableFragments().next) Reveal.nextFragment();
    const page = slide.getBoundingClientRect(), scale = page.width / 1280;
    const all = [...slide.querySelectorAll("*")];
    const boxes = all.filter(e => e.checkVisibility() && e.offsetHeight).map(element => {
      const box = element.getBoundingClientRect();
      const corners = [box.left - page.left, box.top - page.top];
      corners.push(box.right - page.left, box.bottom - page.top);
      return corners.map(n => n / scale);
    });
    const isText = n => n.nodeType === 3 && n.data.trim();
    const texts = all.filter(e => [...e.childNodes].some(isText));
    const [left, top, right, bottom] =
      [0, 1, 2, 3].map(i => (i < 2 ? Math.min : Math.max)(...boxes.map(box => box[i])));
    const title = slide.querySelector("h1, h2, h3").getBoundingClientRect();
    const seen = slide.contains(document.elementFromPoint(title.left + 40, title.bottom - 10));
    const pictures = [...slide.querySelectorAll("img")];
    const beside = slide.dataset.figure === "beside" && pictures[0]?.getBoundingClientRect();
    const words = [...slide.querySelectorAll("h2, h3, p, li")];
    const lefts = words.map(element => element.getBoundingClientRect().left);
    const wide = [...slide.querySelectorAll("pre, table, div")];
    return {seen, covered: beside && Math.min(...lefts) < beside.right,
      tall: beside ? beside.height / scale : null,
      text: slide.innerText.slice(0, 60), left, top, right, bottom, width: page.width / scale,
      height: page.height / scale,
      words: [...slide.querySelectorAll("p, li")].map(e => e.innerText).join(" ").split(" ").length,
      smallest: Math.min(...texts.map(e => parseFloat(getComputedStyle(e).fontSize))),
      clipped: wide.filter(e => e.scrollWidth > e.clientWidth + 1).length,
      pictures: pictures.map(e => [e.complete && e.naturalWidth > 0, e.alt.length > 9])};
  });
  const asked = performance.getEntriesByType("resource").map(entry => entry.name)
    .filter(name => !name.startsWith("data:"));
  document.body.insertAdjacentHTML("beforeend", "<pre id='measured'></pre>");
  document.getElementById("measured").textContent = JSON.stringify({found, asked});
};
addEventListener("load", measure);</script>"""


@pytest.mark.slow
@pytest.mark.needs(REVEAL, "chromium")
@each_route
def test_one_file_is_written_every_slide_fits_and_nothing_is_asked_of_a_network(
    capsys, tmp_path, route
):
    slides.main(["--route", route, "--to", str(tmp_path / "page.html")])
    count = int(re.search(r"(\d+) slides;", capsys.readouterr().out)[1])
    written = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Reveal.initialize(" in written
    assert not re.search(
        r'<(?:script|link|img|iframe)\b[^>]*\s(?:src|href)=(?!"data:)',
        written.partition("<script>")[0],
    )
    (tmp_path / "page.html").write_text(
        written.replace("</html>", f"{MEASURE}</html>"), encoding="utf-8"
    )
    options = ("--dump-dom", "--window-size=1280,720", "--virtual-time-budget=10000")
    dumped, console = browse(tmp_path / "page.html", tmp_path / "profile", *options)
    measured = json.loads(
        html.unescape(re.search(r'<pre id="measured">(.*?)</pre>', dumped, re.DOTALL)[1])
    )
    assert console == [] and measured["asked"] == [] and len(measured["found"]) == count
    for slide in measured["found"]:
        assert slide["seen"], "it is covered, or has no place on the screen"
        assert (round(slide["width"]), round(slide["height"])) == (1280, 720)
        assert (
            slide["left"] >= 0
            and slide["top"] >= 0
            and slide["right"] <= 1280
            and slide["bottom"] <= 720
        ), slide
        assert (
            slide["clipped"] == 0 and slide["smallest"] >= 16 and all(map(all, slide["pictures"]))
        ), slide
        assert slide["words"] <= 185, slide
        assert not slide["covered"] and (slide["tall"] or 720) > 600, (
            "a figure beside its words has the height of the slide"
        )
    assert any(slide["tall"] for slide in measured["found"])
