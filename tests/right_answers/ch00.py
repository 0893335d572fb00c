"""Right answers to chapter 00, written differently."""

import numpy as np


def entry_by_entry(s, a):
    out = np.empty_like(s)
    for index in np.ndindex(s.shape):
        out[index] = s[index] * a
    return out


def as_lists(s, a):
    return (np.asfortranarray(s).astype(np.longdouble) * a).tolist()


RIGHT_ANSWERS = {"0.1": [entry_by_entry, as_lists]}
