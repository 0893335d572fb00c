"""Refusing bad input with a sentence that names the argument, what came and what was expected."""

import numpy as np


def real_array(name: str, value, axes: str, sizes: dict[str, int] | None = None) -> np.ndarray:
    """``value`` as a float64 array whose axes are named by ``axes``, e.g. ``"T N"``.

    ``sizes`` holds the sizes of the axes seen so far: a known letter must agree, a new one is
    added. Raises ``TypeError`` for what is not a real numeric array, ``ValueError`` for a wrong
    number of axes or a size that disagrees.

    >>> sizes = {}
    >>> real_array("a", np.ones(5), "T", sizes).shape, sizes
    ((5,), {'T': 5})
    """
    sizes = {} if sizes is None else sizes
    try:
        array = np.asarray(readable(value))
    except ValueError as error:
        raise TypeError(f"{name}: expected an array, got rows of different lengths") from error
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
    sized(name, array.shape, axes, sizes)
    return array.astype(np.float64)


def sized(name: str, shape: tuple[int, ...], axes: str, sizes: dict[str, int]) -> None:
    """A ``ValueError`` unless ``shape`` fits ``axes`` and ``sizes``, to which new letters are added."""
    letters = axes.split()
    wanted = f"({', '.join(letters)}{',' if len(letters) == 1 else ''})"
    if len(shape) != len(letters):
        raise ValueError(f"{name}: expected shape {wanted}, got {shape}")
    earlier = set(sizes)
    for letter, size in zip(letters, shape):
        if sizes.setdefault(letter, size) != size:
            source = " as in the earlier arguments" if letter in earlier else ""
            raise ValueError(f"{name}: expected shape {wanted} with {letter} = {sizes[letter]}{source}, got {shape}")


def finite(name: str, array: np.ndarray, *, or_minus_inf: bool = False) -> np.ndarray:
    """``array`` itself, or a ``ValueError`` naming its first entry that is not finite.

    ``or_minus_inf`` admits -inf, which is the logarithm of a decay of 0: a reset.
    """
    bad = ~np.isfinite(array)
    if or_minus_inf:
        bad &= ~np.isneginf(array)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        allowed = "finite or -inf (a reset)" if or_minus_inf else "finite"
        raise ValueError(f"{name}: expected {allowed} values, got {array[index]} at index {list(index)}")
    return array


def readable(value):
    """A torch tensor, or a list of them, as what NumPy can read."""
    if isinstance(value, list | tuple):
        return [readable(v) for v in value]
    if not hasattr(value, "detach") or isinstance(value, type):
        return value
    tensor = value.detach().cpu()
    return tensor.to_dense().resolve_conj().resolve_neg().numpy()
