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
from pybtex.style.template import node, sentence
from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle, PersonStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle
from sphinxcontrib.bibtex.style.template import join, names

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<address>https?://[^)\s]+)\)")
_VERSION = re.compile(r"(arxiv\.org/abs/[\d.]+)v\d+$")


def known_addresses(bibliography: BibliographyData) -> dict[str, tuple[str, str]]:
    """(citation key, authors) of each address by which a chapter may link to an entry."""
    addresses = {}
    for key, entry in bibliography.entries.items():
        fields = entry.fields
        for address in (
            f"https://arxiv.org/abs/{fields['eprint']}" if "eprint" in fields else None,
            f"https://doi.org/{fields['doi']}" if "doi" in fields else None,
            fields.get("url", "").rstrip("/") or None,
        ):
            if address:
                addresses[address] = key, authors(entry)
    return addresses


def cite_links(prose: str, addresses: dict[str, tuple[str, str]]) -> str:
    """Markdown in which links to known addresses are citations; other links stay.

    ``[Dao and Gu (2024)](…)`` reads "Dao and Gu (2024)", ``[Dao and Gu 2024](…)``, which stands
    in parentheses, "Dao and Gu, 2024". A text that is not authors and year keeps its words, and the
    citation follows it.
    """

    def cite(link: re.Match) -> str:
        key, who = addresses.get(_VERSION.sub(r"\1", link["address"]).rstrip("/"), (None, None))
        if key is None:
            return link[0]
        if link["text"] == who or re.search(r"\((19|20)\d\d[a-z]?\)$", link["text"]):
            return f"{{cite:t}}`{key}`"
        if re.search(r"\b(19|20)\d\d[a-z]?$", link["text"]):
            return f"{{cite:alp}}`{key}`"
        return f"{link['text']} {{cite:p}}`{key}`"

    return _LINK.sub(cite, prose)


def authors(entry: Entry) -> str:
    """ "Gu", "Dao and Gu", "Yang et al." """
    persons = entry.persons["author"]
    last = [str(Text.from_latex(" ".join(person.prelast_names + person.last_names))) for person in persons]
    return f"{last[0]} et al." if len(last) > 2 or last[-1] == "others" else " and ".join(last)


class AuthorYearLabels(BaseLabelStyle):
    def format_labels(self, sorted_entries):
        return [f"{authors(entry)}, {entry.fields['year']}" for entry in sorted_entries]


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


@node
def cited_names(children, data, *, other, **separators):
    """The authors of a citation; "Peng et al." also for an entry that lists one author "and others"."""
    persons = data["entry"].persons["author"]
    if other is None or [str(person) for person in persons[1:]] != ["others"]:
        return names(role="author", other=other, **separators).format_data(data)
    person_style = data["style"].person
    first = person_style.style_plugin.format(persons[0], person_style.abbreviate)
    return Text(join[[first]].format_data(data), other)


@dataclass
class EtAl(PersonStyle):
    def author_or_editor_or_title(self, full: bool):
        other = None if full else self.other
        return cited_names(sep=self.sep, sep2=self.sep2, last_sep=self.last_sep, other=other)


def _round() -> BracketStyle:
    return BracketStyle(left="(", right=")")


@dataclass
class RoundAuthorYear(AuthorYearReferenceStyle):
    """ "Dao and Gu (2024)" in the text, "(Dao and Gu, 2024)" in parentheses."""

    bracket_textual: BracketStyle = field(default_factory=_round)
    bracket_parenthetical: BracketStyle = field(default_factory=_round)
    person: PersonStyle = field(default_factory=EtAl)


def _read_addresses(app, config) -> None:
    config.lineage_addresses = {}
    for name in config.bibtex_bibfiles:
        config.lineage_addresses |= known_addresses(parse_file(str(Path(app.srcdir) / name)))


def setup(app) -> None:
    register_pybtex("pybtex.style.formatting", "annotated", AnnotatedStyle)
    register_plugin("sphinxcontrib.bibtex.style.referencing", "author_year_round", RoundAuthorYear)
    app.add_config_value("lineage_addresses", {}, "env")
    app.connect("config-inited", _read_addresses)
