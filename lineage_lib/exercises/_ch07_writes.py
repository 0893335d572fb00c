"""Chapter 07, third part: the template's step, rotating states, a write with two taps (7.7 to 7.9)."""

import numpy as np

from lineage_lib.exercises._ch07_decays import draw_qkv
from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 7.7 one step of the template ---------------------------------------------------------------


def _template_cases(rng):
    def step(K, V, *, g=None, b=None, w=None, unit=True):
        k = rng.standard_normal(K)
        k = k / np.linalg.norm(k) if unit else k
        g = -rng.uniform(0.05, 1.0, K) if g is None else np.broadcast_to(np.asarray(g, float), (K,)).copy()
        b = rng.uniform(0.2, 0.9, K) if b is None else np.full(K, b)
        w = rng.uniform(0.2, 0.9, V) if w is None else np.full(V, w)
        return rng.standard_normal((K, V)), k, rng.standard_normal(V), g, b, w

    cleared = -rng.uniform(0.05, 1.0, 4)
    cleared[1:3] = -np.inf, -8.0
    one = np.ones(1)
    silent, quiet = step(3, 2), step(2, 4)
    silent[1][:] = 0.0
    quiet[1][:] = 0.5, 0.0
    return [
        Case(
            (np.array([[3.0], [7.0]]), np.array([1.0, 0.0]), 5 * one, np.zeros(2), np.ones(2), one),
            "3 is replaced by 5, 7 stays",
        ),
        Case(step(1, 1), "K = V = 1"),
        Case(step(3, 2, g=0.0, b=0.5, w=0.5), "no decay, b = w = 1/2: DeltaNet"),
        Case(step(3, 2, g=-0.3, b=0.7, w=0.7), "one decay for all channels, b = w: Gated DeltaNet"),
        Case(step(4, 3, b=0.6, w=0.6), "b = w: KDA"),
        Case(step(4, 3), "everything differs: Gated DeltaNet-2"),
        Case(step(3, 3, unit=False), "K = V, a key of another length than 1"),
        Case(step(4, 2, g=cleared), "g[1] = -inf: channel 1 is cleared before the read, and g[2] = -8 leaves a trace"),
        Case(step(2, 5, b=0.0), "b = 0: nothing is erased"),
        Case(step(5, 2, w=0.0), "w = 0: nothing is written"),
        Case(silent, "k = 0: the state fades and that is all"),
        Case(quiet, "a key of length 1/2"),
        Case(step(3, 2, b=2.0, w=2.0), "b = w = 2: what stands under the key is reflected"),
    ]


def template_oracle(S, k, v, g, b, w):
    S = np.exp(g)[:, None] * S
    return S - np.outer(k, S.T @ (b * k)) + np.outer(k, w * v)


TEMPLATE = Exercise(
    id="7.7",
    name="template_step",
    title="fade, correct, write",
    points=3,
    minutes=10,
    difficulty="core",
    returns=("S[k, v]",),
    cases=_template_cases,
    oracle=template_oracle,
    mistakes=(
        Mistake(
            "undecayed-read",
            "what is erased was read from the state before its decay; fade first, then read, then erase",
            lambda S, k, v, g, b, w: np.exp(g)[:, None] * S - np.outer(k, S.T @ (b * k)) + np.outer(k, w * v),
        ),
        Mistake(
            "decay-after-erase",
            "the decay acted after the erase; the two do not commute when channels fade at different rates",
            lambda S, k, v, g, b, w: np.exp(g)[:, None] * (S - np.outer(k, S.T @ (b * k))) + np.outer(k, w * v),
        ),
        Mistake(
            "write-decayed",
            "the new write was multiplied by the decay; only what was stored before fades",
            lambda S, k, v, g, b, w: np.exp(g)[:, None] * (np.outer(k, w * v) - np.outer(k, S.T @ (b * k)) + S),
        ),
        Mistake(
            "gate-on-the-other-side",
            "the erase is (b ⊙ k) kᵀ; the gate belongs to the key that reads, so it is k (b ⊙ k)ᵀ",
            lambda S, k, v, g, b, w: (
                np.exp(g)[:, None] * S - np.outer(b * k, (np.exp(g)[:, None] * S).T @ k) + np.outer(k, w * v)
            ),
        ),
        Mistake(
            "logarithm-as-decay",
            "g was used as the decay; it is the decay's logarithm, so the factor is exp(g)",
            lambda S, k, v, g, b, w: g[:, None] * S - np.outer(k, (g[:, None] * S).T @ (b * k)) + np.outer(k, w * v),
        ),
        Mistake(
            "write-gate-on-the-error",
            "w multiplied the whole error, v minus what was found; it gates the new value alone, and b the erase",
            lambda S, k, v, g, b, w: (
                np.exp(g)[:, None] * S + np.outer(k, w * (v - (np.exp(g)[:, None] * S).T @ (b * k)))
            ),
        ),
        Mistake(
            "nothing-erased",
            "the state was faded and the value added, and nothing was erased; subtract what the faded state holds "
            "under b ⊙ k",
            lambda S, k, v, g, b, w: template_oracle(S, k, v, g, np.zeros_like(b), w),
        ),
        Mistake(
            "erase-gate-on-both-keys",
            "b multiplied both keys of the erase; the key that reads is gated, the key that is erased at is k itself",
            lambda S, k, v, g, b, w: (
                np.exp(g)[:, None] * S - np.outer(b * k, (np.exp(g)[:, None] * S).T @ (b * k)) + np.outer(k, w * v)
            ),
        ),
    ),
    hints=(
        "With `g = 0`, ones in `b` and `w` and a key of length 1, reading the new state at the key gives exactly `v`.",
        "Three lines in the order of the equation read from right to left: fade the rows, erase, write.",
        "The erase is an outer product of the key with a row of V numbers: what the faded state holds at `b * k`.",
        "Overwrite a local variable with the faded state first. Both later terms are outer products with the plain key "
        "on the left.",
    ),
)


# --- 7.8 a state that rotates -------------------------------------------------------------------


def _turn_cases(rng):
    def rows(T, K, *, low=-1.5, high=1.5):
        return rng.standard_normal((T, K)), rng.uniform(low, high, (T, K // 2))

    quarter = np.full((3, 1), np.pi / 2)
    return [
        Case((np.array([[1.0, 0.0]] * 3), quarter), "by hand: a quarter turn a token"),
        Case(rows(1, 4), "T = 1: the first angle counts"),
        Case(rows(6, 2), "K = 2: one pair"),
        Case(rows(4, 4), "T = K"),
        Case(rows(7, 6), "three pairs"),
        Case((rng.standard_normal((5, 4)), np.zeros((5, 2))), "no rotation"),
        Case((rng.standard_normal((6, 4)), np.full((6, 2), 0.4)), "equal angles: a rotary embedding"),
        Case(rows(2, 6), "more pairs than tokens"),
        Case(rows(300, 4, low=0.0, high=0.2), "300 tokens, several turns"),
        Case((np.array([[1.0, 0.0]]), np.array([[3.0]])), "an angle beyond a quarter turn"),
        Case(rows(6, 4, low=-9.0, high=9.0), "angles beyond a whole turn"),
    ]


def _turned(Z, phi, pairs=None, flip=1.0):
    """Every pair of columns turned by phi (T, K/2); pairs: columns of the first and of the second components.

    flip = -1 spoils the sign in the second component: no rotation.
    """
    K = Z.shape[1]
    first, second = (slice(0, K, 2), slice(1, K, 2)) if pairs is None else pairs
    out = np.empty(Z.shape)
    out[:, first] = np.cos(phi) * Z[:, first] - np.sin(phi) * Z[:, second]
    out[:, second] = flip * np.sin(phi) * Z[:, first] + np.cos(phi) * Z[:, second]
    return out


def turn_back_oracle(Z, theta):
    return _turned(Z, -np.cumsum(theta, axis=0))


def _halves(Z, theta):
    half = Z.shape[1] // 2
    return _turned(Z, -np.cumsum(theta, axis=0), (slice(0, half), slice(half, None)))


TURN_BACK = Exercise(
    id="7.8",
    name="turn_back",
    title="rotated keys for a still state",
    points=3,
    minutes=12,
    difficulty="core",
    returns=("turned[t, k]",),
    cases=_turn_cases,
    oracle=turn_back_oracle,
    mistakes=(
        Mistake(
            "forwards",
            "the rows were turned forwards; the rotation of the state is undone, so the angle is negative",
            lambda Z, theta: _turned(Z, np.cumsum(theta, axis=0)),
        ),
        Mistake(
            "own-angle-only",
            "row t was turned by its own angle alone; the state has turned by all angles up to t",
            lambda Z, theta: _turned(Z, -theta),
        ),
        Mistake(
            "one-token-late",
            "the angles up to t - 1 were added up; the state turns before it is written at t, so theta[t] counts",
            lambda Z, theta: _turned(Z, theta - np.cumsum(theta, axis=0)),
        ),
        Mistake(
            "other-pairs",
            "columns k and k + K/2 were paired; here neighbours are, columns 0 and 1, 2 and 3, …",
            _halves,
        ),
        Mistake(
            "token-number-times-angle",
            "the angle was taken as (t + 1) theta[t], which is right when all tokens turn by the same angle; "
            "add up the angles of the tokens",
            lambda Z, theta: _turned(Z, -theta * np.arange(1, len(Z) + 1)[:, None]),
        ),
        Mistake(
            "summed-over-pairs",
            "the angles were added up along the pairs; time is axis 0",
            lambda Z, theta: _turned(Z, -np.cumsum(theta, axis=1)),
        ),
        Mistake(
            "sign-slip",
            "both components were made with a plus sign, which is no rotation: one of the two sines has a minus",
            lambda Z, theta: _turned(Z, -np.cumsum(theta, axis=0), flip=-1.0),
        ),
        Mistake(
            "summed-from-the-end",
            "the angles from t to the end were added up; the state at t has turned by those from the start up to t",
            lambda Z, theta: _turned(Z, -np.cumsum(theta[::-1], axis=0)[::-1]),
        ),
    ),
    hints=(
        "Turning does not change the length of a row. By hand: after one quarter turn back, `(1, 0)` is `(0, -1)`.",
        "First the angle of the state at token t since the start: one number for each pair, added up over time.",
        "Columns with even numbers, `Z[:, 0::2]`, are the first components of all pairs; those with odd numbers, "
        "`Z[:, 1::2]`, the second.",
        "The first component becomes cosine times first plus sine times second; the second becomes cosine times second "
        "minus sine times first. Compute both before you overwrite one.",
    ),
)


# --- 7.9 a write with two taps ------------------------------------------------------------------


def _trapezoid_cases(rng):
    def head(T, K, V, *, lam=None, A=None, dt=None):
        C, B, X = draw_qkv(rng, T, K, V)
        lam = rng.uniform(0.1, 0.9, T) if lam is None else np.full(T, lam)
        A = -rng.uniform(0.2, 1.5, T) if A is None else A
        dt = rng.uniform(0.1, 1.0, T) if dt is None else dt
        return X, dt, A, lam, B, C

    one = np.ones((3, 1))
    half = np.full(3, np.log(0.5))
    cleared, skipped = -rng.uniform(0.2, 1.5, 8), rng.uniform(0.1, 1.0, 7)
    cleared[4], skipped[3] = -np.inf, 0.0
    kept = head(200, 2, 3, A=np.zeros(200), dt=rng.uniform(0.3, 4.0, 200))
    forgetful = head(30, 3, 2, A=np.full(30, -np.inf))
    forgetful[0][0], forgetful[5][0] = 1e40, 0.0
    return [
        Case(
            (np.array([[3.0], [0.0], [8.0]]), np.ones(3), half, np.array([1.0, 0.5, 0.5]), one, one),
            "by hand: a = 1/2, so 3, 2.25, 5.125",
        ),
        Case(head(1, 2, 3), "T = 1: there is no earlier token"),
        Case(head(6, 1, 3), "K = 1"),
        Case(head(5, 4, 4), "K = V"),
        Case(head(6, 3, 2, lam=1.0), "lam = 1: Mamba-2"),
        Case(head(7, 2, 4, lam=0.5), "lam = 1/2: the trapezoid"),
        Case(head(6, 3, 2, lam=0.0), "lam = 0: a token is written one step late"),
        Case(head(8, 2, 3, A=cleared), "A[4] = -inf: the state and the earlier token are gone"),
        Case(head(7, 3, 2, dt=skipped), "dt[3] = 0: the token is skipped"),
        Case(head(300, 2, 3, A=np.full(300, -4.0)), "300 tokens; the product of all decays underflows to 0"),
        Case(kept, "200 tokens with A = 0 and steps up to 4: nothing fades"),
        Case(forgetful, "A = -inf throughout: of X[0] = 1e40 nothing is left at token 1"),
    ]


def _trapezoid(X, dt, A, lam, B, C, *, before=None, now=None, earlier=None):
    """The loop with another weight of the earlier token, of this one, or another earlier write."""
    before = before or (lambda t, a: (1 - lam[t]) * dt[t] * a)
    now = now or (lambda t, a: lam[t] * dt[t])
    earlier = earlier or (lambda t: np.outer(B[t - 1], X[t - 1]) if t else 0.0)
    S, Y = np.zeros((B.shape[1], X.shape[1])), np.zeros(X.shape)
    for t in range(len(X)):
        a = np.exp(dt[t] * A[t])
        S = a * S + before(t, a) * earlier(t) + now(t, a) * np.outer(B[t], X[t])
        Y[t] = S.T @ C[t]
    return Y


def trapezoid_oracle(X, dt, A, lam, B, C):
    return _trapezoid(X, dt, A, lam, B, C)


TRAPEZOID = Exercise(
    id="7.9",
    name="trapezoid_recurrent",
    title="a write with two taps",
    points=3,
    minutes=10,
    difficulty="core",
    returns=("Y[t, v]",),
    cases=_trapezoid_cases,
    oracle=trapezoid_oracle,
    mistakes=(
        Mistake(
            "earlier-token-not-decayed",
            "the earlier token's write was not multiplied by the decay; it lies a step back, as the state does",
            lambda X, dt, A, lam, B, C: _trapezoid(X, dt, A, lam, B, C, before=lambda t, a: (1 - lam[t]) * dt[t]),
        ),
        Mistake(
            "weights-swapped",
            "lam weighs the earlier token and 1 - lam this one; it is the other way round",
            lambda X, dt, A, lam, B, C: trapezoid_oracle(X, dt, A, 1 - lam, B, C),
        ),
        Mistake(
            "one-tap",
            "only this token was written, with the weight lam; the earlier token comes in with the weight 1 - lam",
            lambda X, dt, A, lam, B, C: _trapezoid(X, dt, A, lam, B, C, before=lambda t, a: 0.0),
        ),
        Mistake(
            "wrapped-around",
            "before the first token there is nothing, and the last token was taken; index -1 is the last row",
            lambda X, dt, A, lam, B, C: _trapezoid(X, dt, A, lam, B, C, earlier=lambda t: np.outer(B[t - 1], X[t - 1])),
        ),
        Mistake(
            "earlier-step-size",
            "the earlier token was weighed with its own step size; both taps belong to this step, with dt[t]",
            lambda X, dt, A, lam, B, C: _trapezoid(
                X, dt, A, lam, B, C, before=lambda t, a: (1 - lam[t]) * dt[t - 1] * a
            ),
        ),
        Mistake(
            "both-decayed",
            "this token's own write was decayed as well; only the state and the earlier token lie a step back",
            lambda X, dt, A, lam, B, C: _trapezoid(X, dt, A, lam, B, C, now=lambda t, a: lam[t] * dt[t] * a),
        ),
        Mistake(
            "earlier-lambda",
            "the earlier token was weighed with its own lam; both taps belong to this step, with lam[t]",
            lambda X, dt, A, lam, B, C: _trapezoid(
                X, dt, A, lam, B, C, before=lambda t, a: (1 - lam[t - 1]) * dt[t] * a
            ),
        ),
        Mistake(
            "this-token-in-full",
            "lam is missing from this token's own write; the two taps have the weights 1 - lam and lam",
            lambda X, dt, A, lam, B, C: _trapezoid(X, dt, A, lam, B, C, now=lambda t, a: dt[t]),
        ),
    ),
    hints=(
        "With `lam = 1` this is Mamba-2. With one token the output is `lam[0] * dt[0]` times `C · B` times the input.",
        "Three terms make the new state: the faded old state, the earlier token's outer product, this token's outer "
        "product.",
        "The earlier token's weight has three factors: `1 - lam`, the step size and the decay, all of this step.",
        "Keep the last outer product in a variable that starts as zeros; at the end of each step, replace it.",
    ),
)

EXERCISES = (TEMPLATE, TURN_BACK, TRAPEZOID)
