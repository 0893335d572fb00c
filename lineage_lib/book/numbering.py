"""Numbers that carry the chapter: "Theorem 3.1", "Exercise 3.2", "(3.4)", "Figure 3.1".

Sphinx numbers by position in the table of contents. Here the chapter's number comes from its
file's name, so that the numbers are those of JupyterLab and do not move when a chapter is added.
Each kind counts by itself, and every displayed equation counts, labelled or not.
"""

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from lineage_lib.book import chapter_number


def chapter_numbers(chapter: int, numbers: dict, equations: list[nodes.math_block]) -> dict:
    """One page's numbers, ``{kind: {id: (chapter, k)}}``, from those Sphinx gave it, in document order."""
    renumbered = {
        kind: {identity: (chapter, k) for k, identity in enumerate(of_kind, start=1)}
        for kind, of_kind in numbers.items()
    }
    if "displaymath" in renumbered:
        places = enumerate(equations, start=1)
        renumbered["displaymath"] = {identity: (chapter, k) for k, block in places for identity in block["ids"][:1]}
    return renumbered


def _renumber(app, env) -> list[str]:
    chapters = [name for name in env.toc_fignumbers if chapter_number(name) is not None]
    for name in chapters:
        equations = list(env.get_doctree(name).findall(nodes.math_block))
        env.toc_fignumbers[name] = chapter_numbers(chapter_number(name), env.toc_fignumbers[name], equations)
    return chapters


class Proof(SphinxDirective):
    """``prf:proof`` as a titled box.

    sphinx-proof's own has no title, without which a folded proof has nothing to click on, and gives
    every proof of a page the same id. No proof has a number; ``nonumber`` says so to JupyterLab.
    """

    has_content = True
    optional_arguments = 1  # "of part (i)"
    final_argument_whitespace = True
    option_spec = {"class": directives.class_option, "nonumber": directives.flag}  # noqa: RUF012 - docutils reads it from the class

    def run(self) -> list[nodes.Node]:
        box = nodes.admonition(classes=["proof", *self.options.get("class", [])])
        text = " ".join(["Proof", *self.arguments])
        title, messages = self.state.inline_text(text, self.lineno)
        box += nodes.title(text, "", *title)
        self.state.nested_parse(self.content, self.content_offset, box)
        return [box, *messages]


def setup(app) -> None:
    app.setup_extension("sphinx_proof")
    app.add_directive_to_domain("prf", "proof", Proof, override=True)
    app.connect("env-get-updated", _renumber, priority=900)  # after Sphinx has numbered
