"""Sphinx settings. The site works from a file and asks nothing of a network."""

from __future__ import annotations

import gc
import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
# before Rich looks: what commands print in the reference is as wide as a page, and has no colours
os.environ |= {"COLUMNS": "92", "TERM": "dumb", "NO_COLOR": "1"}

import sidelight

# The trees of all pages stay until the end: looking for garbage among them took a third of the build's time.
gc.set_threshold(1_000_000)

project = "Sidelight"
author = "The Sidelight developers"
copyright = "2026, the Sidelight developers"
release = version = sidelight.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
autodoc_typehints = "none"  # the docstrings say type, symbol and shape
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
html_theme = "furo"
html_title = f"Sidelight {version}"
html_static_path: list[str] = []
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f6fa8", "color-brand-content": "#1f6fa8"},
    "dark_css_variables": {"color-brand-primary": "#6cc0f5", "color-brand-content": "#6cc0f5"},
}


class PublicNames(Directive):
    """``.. public-names:: sidelight.learners``: every public name whose home begins so, documented.

    The list is the package's own, so that a new name is in the reference from its first day.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Autodoc directives for the names, parsed in place."""
        prefix = self.arguments[0]
        lines: list[str] = []
        package = sidelight.worlds if prefix == "sidelight.worlds" else sidelight
        for name, home in package._HOMES.items():
            if home != prefix and not home.startswith(prefix + "."):
                continue
            member = getattr(package, name)
            kind = "autoclass" if isinstance(member, type) else "autofunction"
            lines += [f".. {kind}:: {package.__name__}.{name}"]
            lines += ["   :members:"] if kind == "autoclass" else []
            # what a class of ours takes over from another one of ours is part of what it offers
            ours = ("sidelight.logs", "sidelight.learners.fused.choosing")
            takes_over = isinstance(member, type) and any(b.__module__.startswith(ours) for b in member.__bases__)
            lines += ["   :inherited-members:", ""] if takes_over else [""]
        container = nodes.section()
        container.document = self.state.document
        self.state.nested_parse(StringList(lines, source="public names"), self.content_offset, container)
        return container.children


class CommandLine(Directive):
    """``.. command-line::``: what ``--help`` says of every command, as it is said."""

    def run(self) -> list[nodes.Node]:
        """A section for each command."""
        from sidelight.cli import COMMANDS

        found: list[nodes.Node] = []
        for name in COMMANDS:
            code, printed = self.help_of(name)
            if code:  # a command whose module is not there is not shown
                continue
            section = nodes.section(ids=[f"sidelight-{name}"])
            section += nodes.title(text=f"sidelight {name}")
            section += nodes.literal_block(text=printed.strip("\n"), language="text")
            found.append(section)
        return found

    @staticmethod
    def help_of(name: str) -> tuple[int, str]:
        """Exit code and output of ``sidelight name --help``, in this process: starting 23 others takes ten seconds."""
        from sidelight.cli import main

        code = 0
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
            try:
                main([name, "--help"])
            except SystemExit as ended:
                code = int(ended.code or 0)
        return code, out.getvalue()


def setup(app: Any) -> None:
    """Register the directives."""
    app.add_directive("public-names", PublicNames)
    app.add_directive("command-line", CommandLine)
