"""Sphinx's settings for the book: `make book` builds it from the whole checkout, so that a link is
one path here and on GitHub.

The notebooks are taken as committed and never executed. Nothing on a page asks for a network:
formulas are MathML, which browsers draw themselves, and the theme brings its own styles and
scripts.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]  # pages.py, and the `helpers` of this checkout

project = "GRPO notebooks"
author = copyright = "the authors of GRPO notebooks"
root_doc = "README"  # which is index.html too: see pages.py
include_patterns = [
    *("README.md", "CONTRIBUTING.md", "AGENTS.md"),
    *(
        "docs/*.md",
        "docs/book/*.md",
        "notebooks/*.md",
        "notebooks/*.ipynb",
        "benchmarks/results/*.md",
        "helpers/pocket/*/README.md",
        "helpers/README.md",
        "helpers/judging/README.md",
        "helpers/laboratory/README.md",
    ),
]
exclude_patterns = [".*", "**/.*", "build", "runs", "tests", "docs/book/contents.md"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "pages"]
nb_execution_mode = "off"
nb_ipywidgets_js = {}  # their loader comes from a network; no committed output is a widget
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # the anchors that GitHub gives to headings
html_math_renderer = "mathml"

# Autodoc imports what it documents. helpers.rewards needs no torch and helpers.metrics pandas and
# Matplotlib, so no GPU either.
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

suppress_warnings = ["myst.header"]  # a heading may skip a level, as the glossary's do

html_theme = "furo"
html_title = "GRPO notebooks"
html_static_path = ["static"]
html_favicon = "static/icon.svg"
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_copy_source = html_use_index = html_domain_indices = False
pygments_style = "friendly"
