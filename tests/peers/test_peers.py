"""Others' recurrences and chunk forms agree with ours, and where they differ it is said how."""

import pytest
import torch

from lineage_lib.reference import lightning_log_decay, naive_recurrent_mlstm
from lineage_lib.rules import RULES
from tests.peers.installed import table_or_skip

table = table_or_skip()
from_transformers = table.from_transformers

# Sums of a few hundred products: float64 leaves 1e-14, float32 1e-6. A gradient passes through every step
# twice, and RG-LRU's 1 − a² near a = 1 costs a float32 peer one digit more.
TOLERANCE = {torch.float64: {"output": 1e-13, "state": 1e-13, "gradient": 1e-12}}
TOLERANCE[torch.float32] = {"output": 1e-5, "state": 1e-5, "gradient": 1e-4}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The tensors are small: a second thread mostly waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_generate_tests(metafunc):
    if "peer" in metafunc.fixturenames:
        peers = table.PEERS
        if "exact_form" in metafunc.fixturenames:
            peers = [peer for peer in peers if peer.precision != "float32"]
            metafunc.parametrize("exact_form", ["recurrent", "chunked"])
        names = [f"{peer.rule}-{peer.name.rpartition('.')[2]}" for peer in peers]
        metafunc.parametrize("peer", peers, ids=names)


def agree(peer, dtype, form):
    for part, found in table.differences(peer, dtype, form).items():
        allowed = TOLERANCE[dtype][part]
        assert found is None or found <= allowed, f"{part}: {found:.1e} apart, allowed {allowed:.0e}"


def test_in_float64(peer, exact_form):
    """The same formula: casts to float32 in the peer's code are raised."""
    agree(peer, torch.float64, exact_form)


def test_as_shipped(peer):
    agree(peer, torch.float32, "recurrent")


def test_every_rule_has_a_peer():
    assert {peer.rule for peer in table.PEERS} - {"simple-gla"} == set(RULES)


def test_the_table_in_the_book_is_current():
    """Its list, not its figures, which differ by the last digits from machine to machine."""
    now = [(p.rule, p.name, p.version, p.note) for p in table.PEERS]
    assert [table.key(row) for row in table.read()] == now, "run python -m tests.peers"


def test_minimax_slopes_have_two_small_terms_more():
    """1e-5 on the layer's factor and on what it divides by: their last layer decays a little, ours not at all."""
    for layer in range(4):
        theirs = from_transformers.minimax_layer(4, 8, layer, 4).slope_rate[:, 0, 0].double()
        head = torch.exp2(-2.0 * torch.arange(1, 5, dtype=torch.float64))
        assert torch.allclose(theirs, head * (1 - layer / (3 + 1e-5) + 1e-5), rtol=1e-6)
        assert torch.allclose(theirs, -lightning_log_decay(4, layer, 4), rtol=0, atol=2e-5)
    assert (theirs > 0).all()
    assert (lightning_log_decay(4, 3, 4) == 0).all()


def test_transformers_adds_an_epsilon_to_mlstms_denominator():
    """It is added to the *stabilised* denominator, so it weighs exp(m) times as much as it seems to.

    Two opposite keys cancel in nᵀ q; what is left of the denominator is exp(−m), here exp(−20).
    """
    k = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64).reshape(1, 2, 1, 2)
    v = torch.tensor([3.0, 1.0], dtype=torch.float64).reshape(1, 2, 1, 1)
    i, f = torch.full((1, 2, 1), 20.0, dtype=torch.float64), torch.full((1, 2, 1), 60.0, dtype=torch.float64)
    q, eps = k[:, :1].expand_as(k), 1e-6
    ours, _ = naive_recurrent_mlstm(q, k, v, i, f)
    heads_first = (x.transpose(1, 2) for x in (q, k, v, i, f))
    theirs = from_transformers.mlstm_recurrent_sequence_native(*heads_first, dtype_state=torch.float64)
    left = torch.exp(torch.tensor(-20.0, dtype=torch.float64))
    assert torch.allclose(theirs[0, 0, 1], ours[0, 1, 0] * left / (left + eps), rtol=1e-6)
    assert theirs[0, 0, 1] < ours[0, 1, 0] / 400
