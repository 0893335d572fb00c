"""The benchmark scripts run; what they measure is committed, never asserted."""

import json

import pytest
import torch

from benchmarks import chunked, ssd_versions
from lineage_lib.chunked import chunk_additive
from lineage_lib.paths import ROOT
from lineage_lib.rules import RULES
from tests.tolerances import ratio


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(chunked, "LONG", 40)
    monkeypatch.setattr(chunked, "VECTOR", {"s4": {"P": 4, "N": 3}, "mamba-1": {"P": 4, "N": 3}, "rg-lru": {"D": 4}})


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_timed(name, short):
    record = chunked.rule_times(name)
    assert record["rule"] == name
    assert record["recurrent"]["least_ms"] > 0
    assert record["chunked"]["least_ms"] > 0


@pytest.mark.parametrize("family", ["additive", "delta"])
def test_a_length_is_timed(family):
    record = chunked.one(family, 100)
    assert record["memory_mb"] >= 0
    assert record["median_ms"] > 0


def test_committed_results_are_of_todays_rules():
    record = json.loads((ROOT / "book/data/chunked_speed.json").read_text(encoding="utf-8"))
    assert {r["rule"] for r in record["rules"]} == set(RULES)
    assert {r["rule"] for r in record["peers"]} == {"gated-deltanet", "kda", "mamba-2", "mlstm"}
    assert {r["T"] for r in record["growth"]} == set(chunked.LENGTHS)


@pytest.mark.parametrize("version", ssd_versions.VERSIONS)
def test_every_version_of_the_chapter_computes_ssd(version):
    q, k, v, g = ssd_versions.drawn(200, 2, 16, 32, torch.float16, "cpu")
    expected, _ = chunk_additive(*(x[None].double() for x in (q, k, v, g)), scale=1.0)
    o = ssd_versions.result(ssd_versions.VERSIONS[version](q, k, v, g, 4))
    assert ratio(o, expected[0]) < 2e-3
