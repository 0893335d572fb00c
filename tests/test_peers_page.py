"""The page that compares our rules with other people's functions."""

import json

from bs4 import BeautifulSoup

from lineage_lib.book import peers
from lineage_lib.rules import RULES


def test_every_rule_has_a_peer():
    records = json.loads(peers.DATA.read_text(encoding="utf-8"))
    assert set(RULES) <= {record["rule"] for record in records}


def test_the_page_has_a_row_for_each_peer(book):
    page = BeautifulSoup((book.html / "book" / "peers.html").read_text(encoding="utf-8"), "html.parser")
    rows = page.select("table.family tbody tr")
    records = json.loads(peers.DATA.read_text(encoding="utf-8"))
    assert len(rows) == len(records)
    for row, record in zip(rows, records):
        cells = [cell.get_text() for cell in row.find_all("td")]
        assert cells[0] == (RULES[record["rule"]].title if record["rule"] in RULES else record["rule"])
        assert cells[1] in record["peer"]
        assert cells[2] == f"{record['package']} {record['version']}"
