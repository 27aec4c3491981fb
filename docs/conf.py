"""How Sphinx builds this site: MyST Markdown, a notebook, the pydata theme, formulas by MathJax, code's reference."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for reference_tables

project = "xalign-ray"
author = "the xalign-ray authors"
release = version = installed("xalign-ray")
extensions = ["myst_nb", "sphinx.ext.mathjax", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference_tables"]
myst_enable_extensions = ["dollarmath", "deflist"]
nb_execution_mode = "off"  # tests/ray/test_notebook.py executes it; the page shows the outputs it holds
nb_output_stderr = "remove"
myst_heading_anchors = 3  # so that pages can link to sections
default_role = "code"  # of single backticks in docstrings
exclude_patterns = ["_build", "jupyter_execute"]  # the second is what myst-nb leaves of the notebook
html_theme = "pydata_sphinx_theme"
html_title = project
html_show_copyright = False
html_theme_options = {"secondary_sidebar_items": ["page-toc"], "navigation_with_keys": False}
html_sidebars = {"index": []}
