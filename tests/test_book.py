"""The book: every link in it leads somewhere, nothing on a page is fetched, it can be searched, and
it fits a phone.
"""

import doctest
import functools
import html
import http.server
import importlib.util
import json
import re
import subprocess
import sys
import threading

import pytest
from browser import browse, in_a_browser
from links import anchors, broken, loaded

from helpers import PROJECT, rewards

MISSING = [
    name
    for name in ("sphinx", "myst_nb", "furo", "latex2mathml", "ziamath")
    if importlib.util.find_spec(name) is None
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed (make book)"),
]
READ = ["index.html", "notebooks/04_training_metrics.html", "docs/api-rewards.html"]  # in a browser

# Each page in a frame of each width (a window itself cannot be as narrow as a phone): what it asked
# for, and what sticks out of it without standing in a box of its own that scrolls.
FRAMES = """<!DOCTYPE html><link rel="icon" href="data:,"><body>%s<pre id="told"></pre><script>
const scrolling = /auto|scroll/;
const scrolls = element => element.tagName !== "ARTICLE" &&
  (scrolling.test(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
const told = frame => {
  const page = frame.contentDocument, width = frame.contentWindow.innerWidth, parts = [...page.querySelectorAll("article *")];
  return {page: frame.dataset.page, width, scroll: page.documentElement.scrollWidth, words: page.body.innerText.length,
    wide: parts.filter(e => e.getBoundingClientRect().right > width + 0.5 && !scrolls(e.parentElement)).map(e => e.outerHTML),
    requests: frame.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name),
    pictures: [...page.images].map(image => [image.complete && image.naturalWidth > 0, image.getBoundingClientRect().width])};
};
addEventListener("load", () => document.getElementById("told").textContent =
  JSON.stringify([...document.querySelectorAll("iframe")].map(told)));
</script></body>"""

# A word typed into the field of the first page, and the hits of the page that follows.
TYPED = """<!DOCTYPE html><link rel="icon" href="data:,"><body>
<iframe width="1280" height="800" src="book/index.html"></iframe><pre id="told"></pre><script>
const frame = document.querySelector("iframe");
const hits = () => [...frame.contentDocument.querySelectorAll("#search-results li a")].map(hit => hit.getAttribute("href"));
frame.addEventListener("load", () => {
  const field = frame.contentDocument.querySelector("input[name=q]");
  field.value = "%s";
  field.form.requestSubmit();
  setInterval(() => document.getElementById("told").textContent = JSON.stringify(hits()), 50);
}, {once: true});
</script></body>"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The site as `make book` makes it: any warning of Sphinx, such as a link that leads nowhere,
    is an error.
    """
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        folder / "cache",
        "-c",
        "docs",
        ".",
        folder / "book",
    ]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "book"


@pytest.fixture
def address(book):
    """A server of the folder that holds the book, for what a browser refuses to do with files."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *said):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=book.parent)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def page(book, name) -> str:
    return (book / name).read_text(encoding="utf-8")


def told(dumped: str):
    return json.loads(html.unescape(re.search(r'<pre id="told">(.*?)</pre>', dumped, re.DOTALL)[1]))


def test_every_link_in_the_book_leads_somewhere_and_no_page_loads_anything_from_elsewhere(book):
    pages = sorted(book.rglob("*.html"))
    assert len(pages) > 40
    for each in pages:
        assert broken(each) == [] and loaded(each) == [], each
    for style in book.rglob("*.css"):
        assert not re.search(
            r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")
        ), style


def test_a_link_of_the_book_that_leads_nowhere_would_be_found(book, tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="gone.html"></a><a href="#gone"></a><a id="here" href="#here"></a><img '
        'src="//cdn.example/x.png">'
        '<script src="https://cdn.example/x.js"></script><a href="https://example.org/"></a>'
        '<style>@import "//cdn.example/x";</style>'
    )
    assert broken(tmp_path / "page.html") == ["page.html: gone.html", "page.html: #gone"]
    assert loaded(tmp_path / "page.html") == [
        "//cdn.example/x.png",
        "https://cdn.example/x.js",
        "//cdn.example/x",
    ]


@pytest.mark.parametrize(
    "path", sorted(PROJECT.glob("notebooks/*.ipynb")), ids=lambda path: path.stem
)
def test_a_notebook_is_a_page_with_its_outputs_and_folded_solutions(book, path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown = page(book, f"notebooks/{path.stem}.html")
    title = "".join(cells[0]["source"]).splitlines()[0].removeprefix("# ")
    assert re.findall(r"<h1>(.*?)<a", shown) == [title]
    assert "COLAB_RELEASE_TAG" not in shown and "Colab and Kaggle" not in shown
    assert shown.count('<img alt="') >= sum(
        '<img alt="' in json.dumps(cell).replace('\\"', '"') for cell in cells
    )
    folded = re.findall(r"<details.*?</details>", shown, re.DOTALL)
    for cell in cells:
        if "solution" in cell["metadata"].get("tags", []):
            first = next(
                line for line in cell["source"] if line.startswith("### BEGIN SOLUTION")
            ).strip()
            assert sum(first in part for part in folded) and shown.count(first) == sum(
                part.count(first) for part in folded
            )


def test_what_is_long_is_folded_and_what_folds_by_itself_is_left_to_it(book):
    folded = re.findall(
        r'<details class="[^"]*below-input.*?</details>',
        page(book, "notebooks/10_agents.html"),
        re.DOTALL,
    )
    assert folded and any("guess(number=58)" in part for part in folded)
    shown = page(book, "notebooks/04_training_metrics.html")
    assert "<details><summary>step 1:" in shown and "below-input" not in shown


def test_formulas_are_drawn_by_the_browser_itself(book):
    shown = page(book, "notebooks/06_grpo_from_scratch.html")
    formulas = re.findall(r"<math .*?</math>", shown, re.DOTALL)
    assert len(formulas) > 70 and not any("\\" in formula for formula in formulas), (
        "a command that was not understood"
    )
    assert r"\frac" not in shown and (book / "_static" / "math.ttf").stat().st_size > 1e6


def test_the_functions_of_rewards_and_metrics_are_there_with_their_examples(book):
    from helpers.metrics import plots

    shown = page(book, "docs/api-rewards.html")
    functions = {
        f"helpers.rewards.{name}" for name in rewards.__all__ if callable(getattr(rewards, name))
    }
    assert functions <= anchors(book / "docs/api-rewards.html")
    assert (
        '<span class="gp">&gt;&gt;&gt; </span>' in shown
        and "<strong>rubric</strong>" in shown
        and "[source]" in shown
    )
    assert f"helpers.metrics.plots.{plots.dashboard.__name__}" in anchors(
        book / "docs/api-metrics.html"
    )


def test_a_docstring_becomes_paragraphs_code_and_examples():
    sys.path.insert(0, str(PROJECT / "docs"))
    try:
        import pages
    finally:
        sys.path.pop(0)
    assert doctest.testmod(pages).attempted and doctest.testmod(pages).failed == 0
    told = "First.\n\nkind: one `x`, or\n    two. size, kind: a_b. Note: no parameter."
    assert pages.as_rst(told, ["kind", "size"]) == (
        "First.\n\n**kind**: one ``x``, or two.\n\n**size, kind**: a\\_b. Note: no parameter.\n"
    )


@in_a_browser
def test_three_pages_fit_a_phone_and_a_desk_and_ask_for_nothing_from_elsewhere(
    book, address, tmp_path
):
    sizes = [(name, width) for name in READ for width in (390, 1280)]
    frame = (
        '<iframe style="border:0" data-page="{0}" width="{1}" height="800" src="book/{0}"></iframe>'
    )
    (book.parent / "frames.html").write_text(
        FRAMES % "".join(frame.format(*size) for size in sizes), encoding="utf-8"
    )
    dumped, console = browse(f"{address}/frames.html", tmp_path / "profile", "--dump-dom")
    assert console == []
    for (name, width), seen in zip(sizes, told(dumped), strict=True):
        assert (seen["page"], seen["width"]) == (name, width) and seen["words"] > 2_000
        assert seen["scroll"] <= width and seen["wide"] == [], name
        assert seen["requests"] and all(
            request.startswith((address, "data:")) for request in seen["requests"]
        )
        assert all(drawn and 0 < wide <= width for drawn, wide in seen["pictures"])


@in_a_browser
def test_a_word_typed_into_the_field_finds_its_pages(book, address, tmp_path):
    (book.parent / "typed.html").write_text(TYPED % "advantage", encoding="utf-8")
    dumped, console = browse(
        f"{address}/typed.html", tmp_path / "profile", "--dump-dom", "--virtual-time-budget=20000"
    )
    hits = {hit.partition("?")[0].partition("#")[0] for hit in told(dumped)}
    assert (
        console == [] and {"notebooks/GLOSSARY.html", "notebooks/06_grpo_from_scratch.html"} <= hits
    )


@in_a_browser
def test_the_search_works_from_the_disk_too(book, tmp_path):
    where = (book / "search.html").as_uri() + "?q=advantage"
    dumped, console = browse(
        where, tmp_path / "profile", "--dump-dom", "--virtual-time-budget=20000"
    )
    assert (
        console == []
        and "notebooks/GLOSSARY.html"
        in re.search(r'<div id="search-results">(.*)', dumped, re.DOTALL)[1]
    )
