"""How Sphinx builds this site: MyST Markdown, the pydata theme, formulas by MathJax, reference from the code."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for reference_tables

project = "xalign-ray"
author = "the xalign-ray authors"
release = version = installed("xalign-ray")
extensions = ["myst_parser", "sphinx.ext.mathjax", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference_tables"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3  # so that pages can link to sections
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_title = project
html_show_copyright = False
html_theme_options = {"secondary_sidebar_items": ["page-toc"], "navigation_with_keys": False}
html_sidebars = {"index": []}
