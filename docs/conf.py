"""How Sphinx makes a site of these pages: `make docs`, then build/docs/index.html."""

from __future__ import annotations

project = "safelaunch"
author = "the safelaunch authors"
html_title = "safelaunch"
extensions = ["myst_parser"]
# The source folder is the checkout: pages link to examples and to CONTRIBUTING.md as they do on a forge.
include_patterns = ["docs/**.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
                    "examples/**/README.md", "tests/checkpoints/README.md"]
exclude_patterns = [".*", "build", "dist", "runs"]
root_doc = "docs/index"
html_theme = "furo"
html_extra_path = ["site"]         # index.html, which leads to docs/index.html
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 4           # anchors of headings, as forges make them
