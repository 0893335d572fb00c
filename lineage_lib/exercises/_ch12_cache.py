"""Chapter 12, third part: copying with a cache (12.6)."""

import numpy as np

from lineage_lib.exercises.record import Case, Exercise, Mistake


def _ngram_cases(rng):
    twice = np.array([3, 1, 4, 1, 5, 9])
    late = np.concatenate([rng.permutation(9), [2, 7, 2, 8, 2, 7]])
    return [
        Case((twice, 1), "by hand: 1 stands twice, and the copy goes in a circle"),
        Case((twice, 2), "by hand: no two symbols stand twice, and the copy is exact"),
        Case((np.array([7, 2]), 1), "two symbols"),
        Case((np.array([5, 6, 5]), 1), "the last symbol is a repeat, but nothing follows it"),
        Case((np.array([1, 1, 1, 1, 2, 1, 3]), 2), "a run"),
        Case((np.array([0, 1, 2, 0, 1, 3, 0, 1, 3]), 2), "the most frequent follower is not the first"),
        Case((late, 1), ""),
        Case((rng.integers(0, 3, 30), 3), "three symbols"),
        Case((rng.integers(0, 2, 40), 4), "two symbols, n = 4"),
        Case((rng.integers(0, 2, 40), 9), "two symbols, n = 9"),
        Case((rng.integers(0, 10, 80), 1), "ten symbols, n = 1"),
        Case((rng.integers(0, 10, 80), 2), "ten symbols, n = 2"),
        Case((rng.permutation(25), 1), "no symbol stands twice: exact"),
    ]


def ngram_oracle(prompt, n):
    return _ngram(prompt, n)


def _ngram(
    prompt,
    n,
    *,
    choose=lambda places, prompt, n: places[0],
    width=lambda n: n,
    follow=lambda text, p, n: text[p + n],
):
    known = [int(x) for x in prompt]
    out, w = known[:n], width(n)
    while len(out) < len(prompt):
        places = [p for p in range(len(known) - w) if known[p : p + w] == out[len(out) - w :]]
        out.append(follow(known, choose(places, known, w), w) if places else out[-1])
    return np.array(out)


def _ngram_with(**slip):
    return lambda prompt, n: _ngram(prompt, n, **slip)


def _most_frequent(places, prompt, n):
    followers = [prompt[p + n] for p in places]
    return places[int(np.argmax([followers.count(f) for f in followers]))]


def _nearest(prompt, n):
    """Follows the place that the copy has come to: an exact copy."""
    return np.array(prompt)


def _without_start(prompt, n):
    return np.concatenate([_ngram(prompt, n)[n:], np.zeros(n, dtype=int)])


def _of_the_prompt(prompt, n):
    """Each symbol follows the first place of the *prompt's* own last n symbols: an error does not spread."""
    known = [int(x) for x in prompt]
    out = known[:n]
    for t in range(n, len(known)):
        places = [p for p in range(len(known) - n) if known[p : p + n] == known[t - n : t]]
        out.append(known[places[0] + n])
    return np.array(out)


NGRAM = Exercise(
    id="12.6",
    name="copy_by_ngram",
    title="copy by looking up n symbols",
    points=2,
    minutes=10,
    difficulty="core",
    returns=("copy[position]",),
    cases=_ngram_cases,
    oracle=ngram_oracle,
    mistakes=(
        Mistake(
            "last-place",
            "the last place was taken; where the n symbols stand more than once, the ask takes the first",
            _ngram_with(choose=lambda places, prompt, n: places[-1]),
        ),
        Mistake(
            "most-frequent-follower",
            "the most frequent follower was taken; the ask takes that of the first place",
            _ngram_with(choose=_most_frequent),
        ),
        Mistake(
            "prompt-returned",
            "this is the prompt; a copier that looks up n symbols fails where they stand twice, and that is the point",
            _nearest,
        ),
        Mistake(
            "context-of-the-prompt",
            "the n symbols were taken from the prompt; a copier has only its own output, where an error spreads",
            _of_the_prompt,
        ),
        Mistake(
            "one-symbol-fewer",
            "n − 1 symbols were looked up (one, where n is 1)",
            _ngram_with(width=lambda n: max(n - 1, 1)),
        ),
        Mistake(
            "symbol-itself",
            "the last of the n symbols found was put out; what follows it is asked for",
            _ngram_with(follow=lambda text, p, n: text[p + n - 1]),
        ),
        Mistake(
            "one-too-far",
            "the second symbol after the n was put out (the last one at the end of the prompt)",
            _ngram_with(follow=lambda text, p, n: text[min(p + n + 1, len(text) - 1)]),
        ),
        Mistake(
            "start-left-out",
            "the first n symbols are missing and zeros stand at the end; the copy begins with them",
            _without_start,
        ),
    ),
    hints=(
        "Begin with the first n symbols of the prompt. What is the first place where they stand?",
        "For every further symbol take the last n symbols of what has been put out, and go through the prompt from its "
        "start.",
        "A place counts only if a symbol follows it, so there are as many to try as the prompt has symbols, less n.",
        "Two loops: while the output is too short, try the places in order; at the first that matches, append the "
        "symbol behind it and stop trying. Lists compare as a whole.",
    ),
)

EXERCISES = (NGRAM,)
