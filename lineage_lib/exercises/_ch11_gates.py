"""Chapter 11, second part: gates chosen for a purpose, and decays from their parameters (11.4 to 11.7)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake

# --- 11.4 a ledger ------------------------------------------------------------------------------

NOTHING, SET, ADD, DELETE = range(4)


def _ledger_cases(rng):
    def drawn(T):
        return rng.integers(0, 4, T)

    return [
        Case((np.array([SET, ADD, NOTHING, DELETE]), 1, 1), "by hand: one of each"),
        Case((np.array([SET]), 3, 2), "T = 1: set"),
        Case((np.array([ADD]), 2, 3), "T = 1: add"),
        Case((np.array([DELETE]), 3, 2), "T = 1: delete"),
        Case((np.array([NOTHING]), 2, 3), "T = 1: nothing"),
        Case((np.array([ADD, ADD, SET, SET]), 2, 2), "K = V"),
        Case((np.array([DELETE, DELETE, NOTHING]), 3, 3), "T = K = V"),
        Case((drawn(9), 4, 2), ""),
        Case((drawn(30), 2, 5), "thirty tokens"),
    ]


def ledger_oracle(kinds, K, V):
    return _ledger(kinds, K, V)


def _ledger(kinds, K, V, *, erasing=(SET, DELETE), writing=(SET, ADD)):
    erase, write = np.isin(kinds, erasing), np.isin(kinds, writing)
    return np.tile(erase[:, None], (1, K)).astype(float), np.tile(write[:, None], (1, V)).astype(float)


LEDGER = Exercise(
    id="11.4",
    name="ledger_gates",
    title="set, add, delete",
    points=1,
    minutes=6,
    difficulty="warm-up",
    returns=("b[t, k]", "w[t, v]"),
    cases=_ledger_cases,
    oracle=ledger_oracle,
    mistakes=(
        Mistake(
            "one-gate-for-both",
            "every token that writes also erases, as with one gate for both; adding must leave the old amount",
            lambda kinds, K, V: _ledger(kinds, K, V, erasing=(SET, ADD, DELETE)),
        ),
        Mistake(
            "set-does-not-erase",
            "setting adds to the old amount; it has to erase it first",
            lambda kinds, K, V: _ledger(kinds, K, V, erasing=(DELETE,)),
        ),
        Mistake(
            "delete-writes",
            "deleting writes the token's value; its write gate is shut",
            lambda kinds, K, V: _ledger(kinds, K, V, writing=(SET, ADD, DELETE)),
        ),
        Mistake(
            "delete-does-nothing",
            "deleting leaves the old amount; it erases and writes nothing",
            lambda kinds, K, V: _ledger(kinds, K, V, erasing=(SET,)),
        ),
        Mistake(
            "nothing-erases",
            "a token of kind 0 erases; nothing may change, so both gates are shut",
            lambda kinds, K, V: _ledger(kinds, K, V, erasing=(NOTHING, SET, DELETE)),
        ),
        Mistake(
            "nothing-writes",
            "a token of kind 0 writes its value; nothing may change, so both gates are shut",
            lambda kinds, K, V: _ledger(kinds, K, V, writing=(NOTHING, SET, ADD)),
        ),
        Mistake(
            "add-and-delete-swapped",
            "adding and deleting have changed places: kind 2 adds, kind 3 deletes",
            lambda kinds, K, V: _ledger(kinds, K, V, erasing=(SET, ADD), writing=(SET, DELETE)),
        ),
        Mistake(
            "set-and-add-swapped",
            "setting and adding have changed places: kind 1 sets, which erases first, and kind 2 adds",
            lambda kinds, K, V: _ledger(kinds, K, V, erasing=(ADD, DELETE)),
        ),
        Mistake(
            "set-does-not-write",
            "setting erases the old amount and writes nothing; it writes the token's value in its place",
            lambda kinds, K, V: _ledger(kinds, K, V, writing=(ADD,)),
        ),
        Mistake(
            "gates-exchanged",
            "the two gates were returned in each other's place; the erase gate b comes first",
            lambda kinds, K, V: ledger_oracle(kinds, K, V)[::-1],
        ),
    ),
    hints=(
        "Write down four pairs first: is the old amount erased, is the new one written? No two kinds have the same.",
        "The erase gate is open for two of the kinds, the write gate for two, and one kind opens both.",
        "A comparison of `kinds` with a number gives a row of truth values, and `|` joins two of them.",
        "Both gates are constant over their channels: give the row of T truth values a second axis and multiply it by "
        "ones of the wanted width.",
    ),
)


# --- 11.5 named rules as settings ---------------------------------------------------------------

ADDITIVE = ("linear-attention", "mamba-2", "gla")
UNDECAYED = ("linear-attention", "deltanet")
NAMED = (*ADDITIVE, "deltanet", "gated-deltanet", "kda")


def _rule_cases(rng):
    def setting(rule, K, V, *, beta=None):
        alpha = rng.uniform(0.2, 0.9, K) if rule in ("gla", "kda") else float(rng.uniform(0.2, 0.9))
        return rule, alpha, float(rng.uniform(0.2, 0.8)) if beta is None else beta, K, V

    return [
        Case(("kda", np.array([0.9, 0.5]), 0.25, 2, 1), "by hand: KDA"),
        *(Case(setting(rule, 3, 2), "") for rule in NAMED),
        Case(setting("kda", 2, 4), "more value channels than key channels"),
        Case(setting("gated-deltanet", 3, 3), "K = V"),
        Case(setting("deltanet", 2, 5, beta=1.0), "beta = 1"),
        *(Case(setting(rule, 2, 3, beta=1.6), "beta = 1.6, a reflection") for rule in NAMED[3:]),
        Case(setting("gla", 4, 4, beta=0.0), "beta = 0, which an additive rule does not look at"),
        Case(setting("mamba-2", 1, 1), "K = V = 1"),
    ]


def rule_oracle(rule, alpha, beta, K, V):
    return _setting(rule, alpha, beta, K, V)


def _setting(rule, alpha, beta, K, V, *, erase=None, write=None, undecayed=UNDECAYED):
    """The three gates; erase and write replace the pair (additive rules, correcting rules) of a gate's value."""
    decay = np.ones(K) if rule in undecayed else np.broadcast_to(alpha, (K,)).astype(float)
    which = 0 if rule in ADDITIVE else 1
    return decay, np.full(K, (erase or (0.0, beta))[which]), np.full(V, (write or (1.0, beta))[which])


RULE = Exercise(
    id="11.5",
    name="gates_for",
    title="named rules as settings",
    points=2,
    minutes=8,
    difficulty="core",
    returns=("alpha[k]", "b[k]", "w[v]"),
    cases=_rule_cases,
    oracle=rule_oracle,
    mistakes=(
        Mistake(
            "additive-rules-erase",
            "linear attention, Mamba-2 and GLA came out with an open erase gate; they add, so b is 0",
            lambda rule, alpha, beta, K, V: _setting(rule, alpha, beta, K, V, erase=(1.0, beta)),
        ),
        Mistake(
            "additive-rules-write-beta",
            "linear attention, Mamba-2 and GLA came out with the write gate beta; they write the whole value",
            lambda rule, alpha, beta, K, V: _setting(rule, alpha, beta, K, V, write=(beta, beta)),
        ),
        Mistake(
            "correcting-rules-write-in-full",
            "the correcting rules came out with w = 1; beta weighs the error, so it is on the write as well",
            lambda rule, alpha, beta, K, V: _setting(rule, alpha, beta, K, V, write=(1.0, 1.0)),
        ),
        Mistake(
            "correcting-rules-erase-in-full",
            "the correcting rules came out with b = 1; beta weighs the error, so it is on the erase as well",
            lambda rule, alpha, beta, K, V: _setting(rule, alpha, beta, K, V, erase=(0.0, 1.0)),
        ),
        Mistake(
            "beta-left-out",
            "the correcting rules came out with both gates open, as if beta were 1; both are beta",
            lambda rule, alpha, beta, K, V: _setting(rule, alpha, beta, K, V, erase=(0.0, 1.0), write=(1.0, 1.0)),
        ),
        Mistake(
            "clipped",
            "gates above 1 were cut off; beta goes up to 2, and both gates follow it",
            lambda rule, alpha, beta, K, V: _setting(rule, alpha, min(beta, 1.0), K, V),
        ),
        Mistake(
            "deltanet-fades",
            "DeltaNet and linear attention came out with a decay; they have none, so alpha is 1",
            lambda rule, alpha, beta, K, V: _setting(rule, alpha, beta, K, V, undecayed=()),
        ),
        Mistake(
            "logarithms",
            "the decay came out as its logarithm; Gated DeltaNet-2 multiplies rows by alpha itself here",
            lambda rule, alpha, beta, K, V: _logged(_setting(rule, alpha, beta, K, V)),
        ),
        Mistake(
            "no-decay-without-an-erase",
            "Mamba-2 and GLA came out without a decay; they forget, with one rate or with one a channel",
            lambda rule, alpha, beta, K, V: _setting(rule, alpha, beta, K, V, undecayed=(*ADDITIVE, "deltanet")),
        ),
    ),
    hints=(
        "Put the named rule's equation under that of Gated DeltaNet-2 and compare the factor at the old state, the "
        "erase and the write, one after the other.",
        "Three of the six rules never erase. The other three erase and write with the same number.",
        "Two of the six rules never fade. One decay for the head is the same number in every channel.",
        "Start from the gates of KDA, made with `np.full` and `np.broadcast_to`, and overwrite them for the rules that "
        "do not fade and for those that do not erase.",
    ),
)


def _logged(gates):
    return np.log(gates[0]), *gates[1:]


# --- 11.6 log decays ----------------------------------------------------------------------------


def _decay_cases(rng):
    def layer(T, H, K, *, z=None, a=None):
        z = rng.normal(0.0, 2.0, (T, H, K)) if z is None else z
        a = rng.uniform(0.0, np.log(16), H) if a is None else a
        return z, a, rng.normal(-3.0, 1.0, (H, K))

    loud = layer(4, 2, 3)
    loud[0][1, 0, 2], loud[0][2, 1, 0] = 900.0, -900.0
    fast = layer(3, 2, 3, a=np.array([0.7, 2.0]))
    fast[0][1, 0, 2] = 600.0
    tiny = layer(3, 2, 2, a=np.array([27.0, 25.0]))
    tiny[0][:] = rng.uniform(-34.0, -30.0, (3, 2, 2))
    tiny[2][:] = 0.0
    return [
        Case((np.zeros((1, 1, 2)), np.array([np.log(2.0)]), np.zeros((1, 2))), "by hand: softplus(0) = ln 2, twice"),
        Case(layer(1, 2, 3), "T = 1"),
        Case(layer(4, 1, 3), "one head"),
        Case(layer(5, 2, 1), "one channel"),
        Case(layer(6, 2, 3), ""),
        Case(layer(2, 3, 3), "H = K"),
        Case(layer(3, 3, 3), "T = H = K"),
        Case(layer(3, 2, 4, a=np.array([-2.0, 1.5])), "a rate below 1"),
        Case(layer(2, 2, 3, a=np.array([-6.0, 1.0])), "a rate of e^-6"),
        Case(fast, "z = 600: the decay itself is 0 in floating point"),
        Case(loud, "z = 900 and z = -900"),
        Case(tiny, "softplus far out on its left, times e^27"),
    ]


def decay_oracle(z, a, bias):
    return -np.exp(a)[:, None] * np.logaddexp(0.0, z + bias)


def _coarse_softplus(x):
    return np.where(x > 30, x, np.log(1 + np.exp(np.minimum(x, 30))))


LOG_DECAY = Exercise(
    id="11.6",
    name="log_decay",
    title="log decays from their parameters",
    points=1,
    minutes=6,
    difficulty="warm-up",
    returns=("g[t, h, k]",),
    cases=_decay_cases,
    oracle=decay_oracle,
    mistakes=(
        Mistake(
            "overflow",
            "infinite for a large argument, and without the digits of exp(x) for a very negative one, as with "
            "log(1 + exp(x)); np.logaddexp(0, x) does neither",
            lambda z, a, bias: -np.exp(a)[:, None] * np.log(1 + np.exp(z + bias)),
            also=(lambda z, a, bias: np.exp(a)[:, None] * np.log(1 - 1 / (1 + np.exp(-(z + bias)))),),
        ),
        Mistake(
            "overflow-inside-log1p",
            "infinite for a large argument and right elsewhere: before the logarithm an exponential overflowed, as "
            "in log1p(exp(x)), or a sigmoid underflowed; np.logaddexp(0, x) does neither",
            lambda z, a, bias: -np.exp(a)[:, None] * np.log1p(np.exp(z + bias)),
            also=(lambda z, a, bias: np.exp(a)[:, None] * np.log1p(-_sigmoid(z + bias)),),
        ),
        Mistake(
            "digits-lost",
            "far on the left 1 + exp(x) was rounded before the logarithm was taken, and the digits of exp(x) are "
            "lost; np.logaddexp(0, x) and log1p keep them",
            lambda z, a, bias: -np.exp(a)[:, None] * _coarse_softplus(z + bias),
        ),
        Mistake(
            "positive",
            "the logarithms are positive, so that the state would grow; there is a minus in front",
            lambda z, a, bias: np.exp(a)[:, None] * np.logaddexp(0.0, z + bias),
        ),
        Mistake(
            "rate-not-exponentiated",
            "a multiplied softplus directly; a is the logarithm of the rate, so the factor is exp(a)",
            lambda z, a, bias: -a[:, None] * np.logaddexp(0.0, z + bias),
        ),
        Mistake(
            "log-sigmoid",
            "this is the logarithm of a sigmoid, times the rate: softplus of the negative argument; "
            "here a larger argument forgets faster",
            lambda z, a, bias: -np.exp(a)[:, None] * np.logaddexp(0.0, -(z + bias)),
        ),
        Mistake(
            "bias-left-out",
            "the bias is missing inside softplus, where it is added to z",
            lambda z, a, bias: decay_oracle(z, a, np.zeros_like(bias)),
            also=(lambda z, a, bias: -np.exp(a)[:, None] * (np.logaddexp(0.0, z) + bias),),
        ),
        Mistake(
            "rate-left-out",
            "the rate is missing: exp(a) multiplies softplus",
            lambda z, a, bias: -np.logaddexp(0.0, z + bias),
        ),
        Mistake(
            "rate-inside",
            "the rate multiplied the argument of softplus; it multiplies its result",
            lambda z, a, bias: -np.logaddexp(0.0, np.exp(a)[:, None] * (z + bias)),
            also=(lambda z, a, bias: -np.logaddexp(0.0, np.exp(a)[:, None] * z + bias),),
        ),
        Mistake(
            "decays-instead",
            "these are the decays themselves; asked are their logarithms g, which are at most 0",
            lambda z, a, bias: np.exp(decay_oracle(z, a, bias)),
        ),
    ),
    hints=(
        "Every entry is at most 0, and the larger `z` is, the more negative it must be.",
        "Softplus first, then the rate. The bias is part of softplus's argument.",
        "The rate is one number for a head. Give `a` a second axis, so that it lies along the heads of `(T, H, K)`.",
        "Softplus is `np.logaddexp` of zero and its argument. In front stand a minus and the exponential of `a`.",
    ),
)


# --- 11.7 log decays with a lower bound ---------------------------------------------------------


def _bounded_cases(rng):
    def layer(T, H, K, lower=-5.0, *, a=None):
        a = rng.uniform(0.0, np.log(16), H) if a is None else a
        return rng.normal(0.5, 1.0, (T, H, K)), a, rng.normal(-0.5, 0.3, (H, K)), lower

    loud = layer(4, 2, 3)
    loud[0][1, 0, 2], loud[0][2, 1, 0] = 900.0, -900.0
    steep = layer(3, 2, 2, a=np.array([6.0, 3.5]))
    steep[0][:] = rng.normal(0.0, 0.002, (3, 2, 2)) - steep[2]
    far = layer(3, 2, 2, a=np.array([-6.0, -5.0]))
    far[0][0, 0], far[0][2, 1] = (900.0, -900.0), (300.0, -300.0)
    half = (np.zeros((1, 1, 2)), np.array([np.log(2.0)]), np.array([[0.0, np.log(3.0) / 2]]), -4.0)
    return [
        Case(half, "by hand: sigmoid(0) = 1/2, sigmoid(ln 3) = 3/4"),
        Case(layer(1, 2, 3), "T = 1"),
        Case(layer(4, 1, 3), "one head"),
        Case(layer(5, 2, 1), "one channel"),
        Case(layer(6, 2, 3), ""),
        Case(layer(3, 3, 3), "T = H = K"),
        Case(layer(3, 2, 4, lower=-0.6), "another bound"),
        Case(layer(3, 2, 4, a=np.array([-2.0, 1.5])), "a rate below 1"),
        Case(loud, "z = 900 and z = -900"),
        Case(steep, "a rate of e^6, and z + bias near 0"),
        Case(far, "z = 900 and z = -900, with a rate of e^-6"),
    ]


def bounded_oracle(z, a, bias, lower):
    return lower * _sigmoid(np.exp(a)[:, None] * (z + bias))


def _sigmoid(x):
    return np.exp(-np.logaddexp(0.0, -x))


def _cut_off_at(size):
    return lambda z, a, bias, lower: bounded_oracle(np.clip(z, -size, size), a, bias, lower)


BOUNDED = Exercise(
    id="11.7",
    name="bounded_log_decay",
    title="log decays with a lower bound",
    points=2,
    minutes=7,
    difficulty="core",
    returns=("g[t, h, k]",),
    cases=_bounded_cases,
    oracle=bounded_oracle,
    mistakes=(
        Mistake(
            "clipped",
            "the unbounded logarithm was cut off at the bound; there the gradient would be 0, and the formula is a "
            "sigmoid scaled to the bound",
            lambda z, a, bias, lower: np.maximum(decay_oracle(z, a, bias), lower),
        ),
        Mistake(
            "rate-outside",
            "the rate multiplied the sigmoid, so that the logarithm passes the bound; it multiplies the argument",
            lambda z, a, bias, lower: lower * np.exp(a)[:, None] * _sigmoid(z + bias),
        ),
        Mistake(
            "rate-left-out",
            "the rate is missing: exp(a) multiplies the argument of the sigmoid",
            lambda z, a, bias, lower: lower * _sigmoid(z + bias),
        ),
        Mistake(
            "rate-not-exponentiated",
            "a multiplied the argument directly; a is the logarithm of the rate, so the factor is exp(a)",
            lambda z, a, bias, lower: lower * _sigmoid(a[:, None] * (z + bias)),
        ),
        Mistake(
            "bias-left-out",
            "the bias is missing: the rate multiplies z + bias",
            lambda z, a, bias, lower: bounded_oracle(z, a, np.zeros_like(bias), lower),
        ),
        Mistake(
            "bias-not-multiplied",
            "the rate multiplied z alone; it multiplies z + bias",
            lambda z, a, bias, lower: lower * _sigmoid(np.exp(a)[:, None] * z + bias),
        ),
        Mistake(
            "upside-down",
            "the sigmoid runs the wrong way; a larger argument forgets faster, so it goes towards the bound",
            lambda z, a, bias, lower: lower * _sigmoid(-np.exp(a)[:, None] * (z + bias)),
        ),
        Mistake(
            "positive",
            "the logarithms are positive, so that the state would grow; the bound is negative as it comes",
            lambda z, a, bias, lower: -lower * _sigmoid(np.exp(a)[:, None] * (z + bias)),
        ),
        Mistake(
            "argument-cut-off",
            "z was cut off before the rate multiplied it; with a small rate an argument of 300 is still far from the "
            "bound, so take a sigmoid that needs no cutting off",
            lambda z, a, bias, lower: bounded_oracle(np.clip(z, -20.0, 20.0), a, bias, lower),
            also=tuple(_cut_off_at(size) for size in (10.0, 15.0, 25.0, 30.0, 50.0, 100.0)),
        ),
        Mistake(
            "overflow",
            "the sigmoid was taken as exp(x) / (1 + exp(x)), which is infinity over infinity for a large argument",
            lambda z, a, bias, lower: lower * _upper(np.exp(a)[:, None] * (z + bias)),
            also=(lambda z, a, bias, lower: np.nan_to_num(lower * _upper(np.exp(a)[:, None] * (z + bias))),),
        ),
    ),
    hints=(
        "Every entry lies between the bound and 0, and the larger `z` is, the nearer it is to the bound.",
        "Add the bias first, multiply by the rate, then the sigmoid, then the bound.",
        "The rate is one number for a head. Give `a` a second axis, so that it lies along the heads of `(T, H, K)`.",
        "A sigmoid that never becomes infinity over infinity has one exponential, of the negative argument, in its "
        "denominator.",
    ),
)


def _upper(x):
    return np.exp(x) / (1 + np.exp(x))


EXERCISES = (LEDGER, RULE, LOG_DECAY, BOUNDED)
