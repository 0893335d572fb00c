"""Chapter 05, fifth part: the bytes of four kernels and of one (5.2), in plain Python."""

from lineage_lib.exercises.record import Case, Exercise, Mistake


def _bytes_cases(rng):
    def case(*sizes, note=""):
        return Case(sizes, note)

    drawn = (int(n) for n in rng.integers([3, 2, 3, 3, 2], [60, 9, 40, 40, 20]))
    return [
        case(1, 1, 1, 1, 1, 1, note="everything is 1"),
        case(2, 1, 1, 1, 1, 2, note="two chunks of one token"),
        case(4, 2, 3, 5, 4, 4, note="one full chunk"),
        case(5, 1, 2, 3, 4, 2, note="a last chunk of one token"),
        case(8192, 16, 128, 128, 64, 2, note="16 heads of width 128 in 16 bits"),
        case(8192, 32, 128, 64, 256, 2, note="Mamba-2: K = 128, V = 64, chunks of 256"),
        case(1000, 3, 16, 48, 64, 4, note="T is no multiple of C"),
        case(*drawn, 2),
    ]


def bytes_oracle(T, H, K, V, C, itemsize):
    return _bytes(T, H, K, V, C, itemsize)


def _bytes(T, H, K, V, C, itemsize, *, chunks=None, state=4, gates=4, o_read=1, entering=1, final=1, passed=1):
    """All of 5.2; the keywords change one term each."""
    N = -(-T // C) if chunks is None else chunks(T, C)
    tokens = T * H * itemsize
    diagonal = tokens * (2 * K + 2 * V) + gates * T * H
    states = tokens * (K + V) + gates * T * H + state * N * H * K * V
    passing = gates * passed * N * H + state * (2 * N + final) * H * K * V
    reading = tokens * (K + (1 + o_read) * V) + gates * T * H + state * entering * N * H * K * V
    walk = tokens * (2 * K + 2 * V) + gates * T * H + state * final * H * K * V
    return diagonal + states + passing + reading, walk


def _pair(output, *sizes):
    """An array of two numbers is a pair as well."""
    return [*output] if getattr(output, "ndim", 0) == 1 else output


def _slip(name, sentence, **change):
    return Mistake(name, sentence, lambda *sizes: _bytes(*sizes, **change))


BYTES = Exercise(
    id="5.2",
    name="bytes_moved",
    title="bytes of four kernels and of one",
    points=2,
    minutes=15,
    difficulty="core",
    returns=("separate", "fused"),
    cases=_bytes_cases,
    oracle=bytes_oracle,
    view=_pair,
    mistakes=(
        _slip(
            "last-chunk-lost",
            "a last chunk that is not full has a state as well: there are ceil(T / C) chunks",
            chunks=lambda T, C: T // C,
        ),
        _slip("o-not-read", "the fourth kernel adds to o: it reads what it overwrites", o_read=0),
        _slip("entering-not-read", "the fourth kernel reads the states that the third has written", entering=0),
        _slip("no-final-state", "the third kernel and the walk both write a final state, K by V a head", final=0),
        Mistake(
            "states-in-itemsize",
            "the states were counted with itemsize bytes an entry; they are float32, 4 bytes",
            lambda T, H, K, V, C, itemsize: _bytes(T, H, K, V, C, itemsize, state=itemsize),
        ),
        Mistake(
            "gates-in-itemsize",
            "g and G were counted with itemsize bytes an entry; they are float32, 4 bytes",
            lambda T, H, K, V, C, itemsize: _bytes(T, H, K, V, C, itemsize, gates=itemsize),
        ),
        _slip("gate-not-passed", "passing a state on takes one G a chunk and head", passed=0),
        Mistake(
            "swapped",
            "the two numbers are in the wrong order: first the four kernels, then the walk",
            lambda *sizes: _bytes(*sizes)[::-1],
        ),
    ),
    hints=(
        "Both numbers grow in proportion to H. The walk's does not depend on C at all; that of the four kernels does, "
        "through the number of chunks.",
        "Make a table: one row a kernel, what it reads and what it writes. A tensor that two kernels read is counted "
        "twice.",
        "Tensors over tokens have T * H rows of K or V entries of `itemsize` bytes, G has T * H entries of 4 bytes, "
        "and the states of all chunks have ceil(T / C) * H * K * V entries of 4 bytes.",
        "States go through memory four times: written by the second kernel, read and written by the third, read by "
        "the fourth. In the walk only the final one is written.",
    ),
)  # fmt: skip
