"""Citations: a chapter's links to known papers become citations, and the bibliography prints as author-year."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from pybtex.database import BibliographyData, Entry, parse_file
from pybtex.plugin import register_plugin as register_pybtex
from pybtex.richtext import Text
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.template import field as bib_field
from pybtex.style.template import sentence
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<address>https?://[^)\s]+)\)")
_VERSION = re.compile(r"(arxiv\.org/abs/[\d.]+)v\d+$")


def known_addresses(bibliography: BibliographyData) -> dict[str, str]:
    """The citation key of each address by which a chapter may link to an entry."""
    addresses = {}
    for key, entry in bibliography.entries.items():
        fields = entry.fields
        if "eprint" in fields:
            addresses[f"https://arxiv.org/abs/{fields['eprint']}"] = key
        if "doi" in fields:
            addresses[f"https://doi.org/{fields['doi']}"] = key
        if "url" in fields:
            addresses[fields["url"].rstrip("/")] = key
    return addresses


def cite_links(prose: str, addresses: dict[str, str]) -> str:
    """Markdown in which links to known addresses are citations; other links stay.

    ``[Dao and Gu (2024)](…)`` becomes a textual citation. A text without the year keeps its words,
    and the citation follows it in parentheses.
    """

    def cite(link: re.Match) -> str:
        key = addresses.get(_VERSION.sub(r"\1", link["address"]).rstrip("/"))
        if key is None:
            return link[0]
        if re.search(r"\b(19|20)\d\d\b", link["text"]):
            return f"{{cite:t}}`{key}`"
        return f"{link['text']} {{cite:p}}`{key}`"

    return _LINK.sub(cite, prose)


def author_year(entry: Entry) -> str:
    """The label of an entry: "Dao and Gu, 2024"."""
    names = [Text.from_latex(" ".join(person.prelast_names + person.last_names)) for person in entry.persons["author"]]
    names = [str(name) for name in names]
    if len(names) > 2 or names[-1] == "others":
        who = f"{names[0]} et al."
    else:
        who = " and ".join(names)
    return f"{who}, {entry.fields['year']}"


class AuthorYearLabels(BaseLabelStyle):
    def format_labels(self, sorted_entries):
        return [author_year(entry) for entry in sorted_entries]


class AnnotatedStyle(Style):
    """Titles as they are written, and the field ``annote`` after each entry."""

    default_label_style = AuthorYearLabels

    def format_title(self, e, which_field, as_sentence=True):
        title = bib_field(which_field)
        return sentence[title] if as_sentence else title

    def format_entry(self, label, entry, bib_data=None):
        formatted = super().format_entry(label, entry, bib_data)
        if "annote" in entry.fields:
            formatted.text = Text(formatted.text, " ", Text.from_latex(entry.fields["annote"]))
        return formatted


def _round() -> BracketStyle:
    return BracketStyle(left="(", right=")")


@dataclass
class RoundAuthorYear(AuthorYearReferenceStyle):
    """ "Dao and Gu (2024)" in the text, "(Dao and Gu, 2024)" in parentheses."""

    bracket_textual: BracketStyle = field(default_factory=_round)
    bracket_parenthetical: BracketStyle = field(default_factory=_round)


def _read_addresses(app, config) -> None:
    config.lineage_addresses = {}
    for name in config.bibtex_bibfiles:
        config.lineage_addresses |= known_addresses(parse_file(str(Path(app.srcdir) / name)))


def setup(app) -> None:
    register_pybtex("pybtex.style.formatting", "annotated", AnnotatedStyle)
    register_plugin("sphinxcontrib.bibtex.style.referencing", "author_year_round", RoundAuthorYear)
    app.add_config_value("lineage_addresses", {}, "env")
    app.connect("config-inited", _read_addresses)
