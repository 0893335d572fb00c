"""Chapter 10, fourth part: a kernel that is right on paper, to be repaired (10.6).

It has one kernel, which is right with SLIP = "" and makes one known mistake with any other SLIP: among them what the
page shows ("unrepaired") and the same with one of its two faults ("decays-split", "powers-kept").
"""

import numpy as np

from lineage_lib.exercises._ch05_data import RTOL, slipped, tl, triton
from lineage_lib.exercises._ch10_data import GAPS, alike, coefficients, gates, inverse_of
from lineage_lib.exercises.record import Case, Exercise
from lineage_lib.launching import Input, Launch, Output


def _repair_cases(rng):
    def case(T, HV, GROUP, K, note, *, C=16, BK=16, cosine=0.0, **given):
        return Case((alike(rng, T, HV // GROUP, K, cosine), *gates(rng, T, HV, C, **given), GROUP, C, BK), note)

    def jump(at, T):
        return {t: -100.0 if t == at else -0.1 for t in range(T)}

    k = np.array([[1, 0], [0.6, 0.8], [1, 0]], np.float32).reshape(3, 1, 2)
    G = np.log([[1], [0.5], [0.25]]).astype(np.float32)
    return [
        Case((k, G, np.ones((3, 1), np.float32), 1, 16, 16), "the three keys of Ada and Bo, decays 0.5, beta = 1"),
        case(1, 1, 1, 3, "T = 1"),
        case(32, 1, 1, 12, "mild decays, random keys", C=32, beta=0.3),
        case(40, 1, 1, 4, "every g is -3", C=64, g=-3.0),
        case(40, 1, 1, 4, "every g is -100", C=32, g=-100.0),
        case(16, 1, 1, 4, "the second token's decay is -100, all others are mild", g=jump(1, 16)),
        case(16, 1, 1, 4, "the last token's decay is -100, all others are mild", g=jump(15, 16)),
        case(48, 1, 1, 4, "one decay of -100 among mild ones", C=64, g=jump(9, 48)),
        case(64, 1, 1, 4, "the same key in every token, beta = 1, no decay", C=64, cosine=1.0, beta=1.0, g=0.0),
        case(48, 1, 1, 4, "the same key in every token, beta = 2, no decay", C=64, cosine=1.0, beta=2.0, g=0.0),
        case(64, 1, 1, 4, "nearly equal keys, beta = 1", C=64, cosine=0.9, beta=1.0, g=-0.001),
        case(24, 1, 1, 4, "the same key in every token, every g is -20", C=32, cosine=1.0, beta=1.0, g=-20.0),
        case(17, 2, 1, 5, "T = C + 1, two heads"),
        case(11, 4, 2, 4, "four heads of values share two of keys"),
        case(15, 1, 1, 37, "K = 37 in a tile of 64", BK=64),
        case(70, 1, 1, 5, "C = 64, a second chunk of six tokens", C=64),
    ]


def repair_oracle(k, G, beta, GROUP, C, BK):
    return inverse_of(coefficients(k, G, beta, C), C)


def _repair_launch(k, G, beta, GROUP, C, BK):
    (T, HV), K, k = G.shape, k.shape[2], Input(k, GAPS["k"])
    pointers = {"k": k, "G": Input(G), "beta": Input(beta), "inverse": Output((T, HV, C))}
    sizes = {"T": T, "HV": HV, "GROUP": GROUP, "k_t": k.stride, "K": K, "C": C, "BK": BK}
    return Launch((triton.cdiv(T, C), HV), {**pointers, **sizes})


@triton.jit
def _repaired_inverse(
    k, G, beta, inverse, T, HV, GROUP, k_t, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, SLIP: tl.constexpr
):
    c, h = tl.program_id(0), tl.program_id(1)
    n, i = tl.arange(0, C), tl.arange(0, BK)
    t = c * C + n
    live, row, column = t < T, n[:, None], n[None, :]
    p_k = k + t[:, None] * k_t + h // GROUP * K + i[None, :]
    b_k = tl.load(p_k, mask=live[:, None] & (i < K)[None, :], other=0.0)
    b_G = tl.load(G + t * HV + h, mask=live, other=0.0)
    b_beta = tl.load(beta + t * HV + h, mask=live, other=0.0)
    later, below = b_G[:, None] - b_G[None, :], (row > column) & live[:, None]
    if SLIP == "other-triangle":
        below = (row < column) & live[:, None]
    elif SLIP == "dead-rows":
        below = row > column
    b_A = tl.dot(b_k, tl.trans(b_k), input_precision="ieee")
    if SLIP == "beta-of-writer":
        b_A *= b_beta[None, :]
    else:
        b_A *= b_beta[:, None]
    if SLIP == "decays-split" or SLIP == "unrepaired":
        b_reader, b_writer = b_k * (b_beta * tl.exp(b_G))[:, None], b_k * tl.exp(-b_G)[:, None]
        b_A = tl.where(below, tl.dot(b_reader, tl.trans(b_writer), input_precision="ieee"), 0.0)
    elif SLIP == "factors-multiplied":
        b_A = tl.where(below, b_A * (tl.exp(b_G)[:, None] * tl.exp(-b_G)[None, :]), 0.0)
    elif SLIP == "nan-removed":
        b_A = tl.where(below, b_A * (tl.exp(b_G)[:, None] * tl.exp(-b_G)[None, :]), 0.0)
        b_A = tl.where(b_A == b_A, b_A, 0.0)
    elif SLIP == "clamped":
        b_A = tl.where(below, b_A * tl.exp(b_G)[:, None] * tl.exp(tl.minimum(-b_G, 80.0))[None, :], 0.0)
    elif SLIP == "both-clamped":
        b_kept = tl.maximum(b_G, -80.0)
        b_A = tl.where(below, b_A * (tl.exp(b_kept)[:, None] * tl.exp(-b_kept)[None, :]), 0.0)
    elif SLIP == "moved-to-the-middle" or SLIP == "moved-to-the-end":
        b_last = tl.load(G + (tl.minimum(c * C + C, T) - 1) * HV + h)
        b_moved = b_G - b_last
        if SLIP == "moved-to-the-middle":
            b_moved = b_G - 0.5 * b_last
        b_A = tl.where(below, b_A * (tl.exp(b_moved)[:, None] * tl.exp(-b_moved)[None, :]), 0.0)
    elif SLIP == "exp-times-mask":
        b_A *= tl.exp(later) * below
    elif SLIP == "undecayed":
        b_A = tl.where(below, b_A, 0.0)
    elif SLIP == "both-triangles":
        b_A *= tl.exp(tl.minimum(later, 0.0))
    else:
        b_A *= tl.exp(tl.where(below, later, float("-inf")))
    b_one = tl.where(row == column, 1.0, 0.0)
    b_X, size = b_one, 1
    if SLIP == "powers-kept" or SLIP == "unrepaired" or SLIP == "powers-cut":
        b_X = b_one - b_A
        power = 2
        while power < C:
            b_A = tl.dot(b_A, b_A, input_precision="ieee")
            if not (SLIP == "powers-cut" and power > 4):
                b_X = tl.dot(b_X, b_one + b_A, input_precision="ieee")
            power *= 2
        size = C
    wide = C
    if SLIP == "last-merge-lost":
        wide = C // 2
    while size < wide:
        pair = (row // (2 * size) == column // (2 * size)) & (row // size != column // size)
        b_Y = tl.dot(b_X, tl.where(pair, b_A, 0.0), input_precision="ieee")
        b_X -= tl.dot(b_Y, b_X, input_precision="ieee")
        size *= 2
        if SLIP == "merged-to-16":
            size = tl.where(size == 16, C, size)
    p_X = inverse + (t[:, None] * HV + h) * C + column
    tl.store(p_X, b_X, mask=live[:, None])


REPAIR = Exercise(
    id="10.6",
    name="repaired_inverse",
    title="repair what is right on paper",
    points=4,
    minutes=30,
    difficulty="hard",
    returns=("inverse[t, h, j]",),
    cases=_repair_cases,
    oracle=repair_oracle,
    launch=_repair_launch,
    rtol=RTOL,
    mistakes=slipped(
        _repaired_inverse,
        (
            "unrepaired",
            "both causes are still there: the decay between two tokens is a product of two exponentials of which one "
            "grows, and the inverse is a sum of powers, which grow too",
        ),
        (
            "decays-split",
            "the inverse is sound now, but the decay between two tokens is still a product of two factors; exp(-G_s) "
            "overflows where decays are strong, and infinity times 0 is NaN",
            "factors-multiplied",
        ),
        (
            "powers-kept",
            "the decays are sound now, but the inverse is still a sum of powers of the table; with like keys they grow "
            "far beyond the inverse and take its digits with them",
        ),
        (
            "nan-removed",
            "the overflow was hidden and not avoided: where exp(-G_s) is too large, the decay from s to t is still "
            "needed, and may be near 1",
            "clamped",
            "both-clamped",
        ),
        (
            "moved-to-the-middle",
            "another origin for the sums only moves the overflow: two factors share a distance that may be any number; "
            "the exponential of their difference never overflows",
            "moved-to-the-end",
        ),
        (
            "exp-times-mask",
            "the exponential was taken of a positive difference, above the diagonal or in a row without a token, whose "
            "G was loaded as 0; it may be infinite, and infinity times 0 is NaN: mask first, t < T too, then "
            "exponentiate",
            "dead-rows",
        ),
        (
            "powers-cut",
            "powers of the table are missing from the sum; they are not small, they cancel, and a shorter sum is "
            "another number",
        ),
        (
            "merged-to-16",
            "blocks were merged up to a size that is not yet the chunk's; go on until one block is the whole chunk",
            "last-merge-lost",
        ),
        (
            "other-triangle",
            "the table has entries on the wrong side: row t has those of the tokens before it, s < t, and no others",
            "both-triangles",
        ),
        (
            "beta-of-writer",
            "the strengths or decays of the table have changed: row t has beta_t, of the token that corrects, and "
            "exp(G_t - G_s)",
            "undecayed",
        ),
    ),
    hints=(
        "The page prints three bad chunks of four, for two reasons. Print the largest entry of each tile, for a chunk "
        "with strong decays and for the one with like keys.",
        "First cause: exp(G_t - G_s) is at most 1, but it is made as a product of two numbers, of which one can be "
        "larger than any float32. Second cause: so are the powers of the table of like keys, and the inverse is small.",
        "First cure: products of keys, then one exponential of a column of G minus a row of G, masked before it is "
        "taken, in rows without a token too. Second cure: never form a power; merge inverses of blocks.",
        "Blocks of one token have the inverse 1, so the tile of inverses starts as the identity, and the loop of the "
        "merges starts at size 1 and doubles until one block is the whole chunk.",
    ),
)
