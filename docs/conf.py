"""Configuration of the documentation site: `make docs` builds it into build/site."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "agents"), str(ROOT / "docs/_extensions")]

from cory import __version__  # noqa: E402

project = "CORY"
author = "The CORY authors"
copyright = author
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
    "code_tables",
    "docstrings",
    "public_names",
    "repository_links",
]
exclude_patterns = ["_extensions"]
language = "en"
nitpicky = True
# Other projects' names are not looked up: the build needs no network.
nitpick_ignore_regex = [
    ("py:.*", r"(collections|contextlib|inspect|pathlib|types|typing)\..*"),
    ("py:.*", r"(datasets|gymnasium|nn|np|numpy|pandas|pd|pettingzoo|torch)\..*"),
    ("py:class", r"Tensor|AECEnv"),  # imported for type checkers only
]
nitpick_ignore = [  # types of arguments that no page describes
    ("py:class", "cory.batch.R"),
    ("py:class", "cory.distributed.sharding.Shards"),
    ("py:class", "cory.token_loss.PartMetrics"),
    ("py:class", "cory.policies.chunked_loss.KLLoss"),
    ("py:class", "cory.policies.head.Head"),
    ("py:class", "cory.runtime.clock.Clock"),
    ("py:class", "cory.study.plan.PlannedRun"),
    ("py:class", "cory.training.check.SeatGame"),
    ("py:class", "cory_env.registry.T"),
]

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

myst_enable_extensions = ["attrs_inline", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are shown as they were saved; `make notebooks` runs them
myst_links_external_new_tab = False

html_theme = "furo"
html_title = f"CORY {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": "https://github.com/cory-rl/cory/",
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_exclude = ".linenos, .gp, .go"
