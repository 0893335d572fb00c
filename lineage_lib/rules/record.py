"""What an update rule is, and the forms that follow from it.

A rule is lowered to one of two recurrences: its own arguments become the queries, keys, values,
erase keys and log-decays of

    S_t = (I − k_t e_tᵀ) diag(exp g_t) S_{t-1} + k_t v_tᵀ,   o_t = S_tᵀ q_t        (e = 0: additive)

and ``finish`` turns outputs and last state back into the rule's. The matrix, the chunked and the
decode form are those of the two recurrences; only the recurrent form is written out for each rule.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from lineage_lib.chunked import chunk_length, run_chunks
from lineage_lib.reference import _loop
from lineage_lib.sequences import Sequences
from lineage_lib.tensors import log_decay, step_size

Tensor = torch.Tensor

FORMS = ("recurrent", "matrix", "chunked", "kernel", "decode")


@dataclass(frozen=True)
class Lowered:
    """A rule's arguments as one of the two recurrences; ``scale`` multiplies o;
    ``counts`` gives the values, o and the state one more column: that of a value that is always 1.

    q, k (B, T, H, K), v (B, T, HV, V), e (B, T, HV, K) or None, g (B, T, HV), (B, T, HV, K) or None,
    state (N, HV, K, V) or None; ``finish(o, S)`` gives the rule's own (o, final state).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor | None
    state: Tensor | None
    sequences: Sequences
    finish: Callable[[Tensor, Tensor], tuple[Tensor, Any]]
    e: Tensor | None = None
    scale: float = 1.0
    erase_before_decay: bool = False
    counts: bool = False

    @property
    def values(self) -> Tensor:
        """v, and with ``counts`` its column of ones."""
        return torch.nn.functional.pad(self.v, (0, 1), value=1.0) if self.counts else self.v


@dataclass(frozen=True)
class Input:
    """One tensor that a rule takes.

    axes  names of its axes, as in lineage_lib.validate, "B T HV K"; T*n is a token's n steps in a row
    kind  what numbers it holds: "vector", "key" (unit length where the rule needs it), "log-decay",
          "gate" (0 to 1), "strength" (0 to 2), "preactivation", "step" (> 0), "rate" (< 0),
          "complex rate", "complex", "angle", "weight"
    optional  may be None
    """

    name: str
    axes: str
    kind: str
    optional: bool = False


@dataclass(frozen=True)
class Rule:
    """One update rule. LaTeX is in this book's letters; what a paper calls them is in ``letters``.

    name, title, year   kebab-case key; what it is called; of the first paper
    family              "additive": writes add; "delta": writes correct
    decay               "none", "fixed", "per token"
    decay_axis          "none", "head": one decay for the state; "channel": one for each key channel
    parts               the equation, LaTeX by part: "forget" (what stands before S_{t-1}), "write",
                        "read", and "with" for what else belongs to it
    forgets, writes     a sentence each
    reads               "after the write" or "before the write"
    state               LaTeX, numbers of state a head, from K and V
    state_size          (K, V) -> the same as a number
    state_parts         letters of what the forms take and give as state: "S" or, for vectors, "h", and what is
                        kept besides
    carrier             (K, V) -> (recurrences that a head is lowered to, their key width, their value width)
    eigenvalues         LaTeX and words: of the transition
    contraction         words: whether the transition can enlarge the state
    papers              keys of book/references.bib
    letters             our letter -> the paper's
    fla                 FLA's functions and what they call our arguments; empty when FLA has none
    inputs              the tensors of every form, in order
    recurrent           the reference: (*tensors, scale=, initial_state=, output_final_state=, **options)
    lower               (*tensors, scale, state, sequences, **options) -> Lowered
    has_scale           False for rules without a scale on the query
    options             keyword arguments of the rule with the values that tests and figures use
    substeps            writes, and places of the time axis, that a token takes in the recurrence
    erases              for the delta family: how many of them read what they erase
    public              the function of ``kernels`` that is the rule, where it is not lowered to one that adds
    missing             form -> why the rule does not have it
    note                what a reader of the table should know besides
    """

    name: str
    title: str
    year: int
    family: str
    decay: str
    decay_axis: str
    parts: dict[str, str]
    forgets: str
    writes: str
    state: str
    eigenvalues: str
    contraction: str
    papers: tuple[str, ...]
    letters: dict[str, str]
    inputs: tuple[Input, ...]
    recurrent: Callable
    lower: Callable[..., Lowered]
    reads: str = "after the write"
    state_size: Callable[[int, int], int] = lambda K, V: K * V
    state_parts: tuple[str, ...] = ("S",)
    carrier: Callable[[int, int], tuple[int, int, int]] = lambda K, V: (1, K, V)
    fla: dict[str, str] = field(default_factory=dict)
    has_scale: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    substeps: int = 1
    erases: int = 1
    public: str = ""
    missing: dict[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(form for form in FORMS if form not in self.missing)

    def chunked(
        self,
        *tensors: Tensor,
        scale: float | None = None,
        initial_state=None,
        output_final_state: bool = False,
        cu_seqlens: Tensor | None = None,
        chunk_size: int = 64,
        **options,
    ) -> tuple[Tensor, Any]:
        """The chunked form: arguments of the recurrent form, and packed sequences, and the chunk's length."""
        low = self.lowered(*tensors, scale=scale, initial_state=initial_state, cu_seqlens=cu_seqlens, **options)
        chunk_size = chunk_length(chunk_size) * self.substeps
        o, S = run_chunks(
            low.q,
            low.k,
            low.v,
            low.e,
            low.g,
            low.state,
            low.sequences,
            chunk_size,
            scale=low.scale,
            erase_before_decay=low.erase_before_decay,
            counts=low.counts,
        )
        o, state = low.finish(o, S)
        return o.to(self._values(tensors).dtype), state if output_final_state else None

    @property
    def kernel_file(self) -> str | None:
        """The Triton kernel that carries the rule over its chunks, in the repository; None without one."""
        if "kernel" not in self.forms:
            return None
        return "kernels/delta_walk.py" if self.public else "kernels/walk.py"

    def kernel(
        self,
        *tensors: Tensor,
        scale: float | None = None,
        initial_state=None,
        output_final_state: bool = False,
        cu_seqlens: Tensor | None = None,
        **options,
    ) -> tuple[Tensor, Any]:
        """The kernel form, in Triton: the rule's own function, in the values' dtype, or the recurrence that it is
        lowered to, in float32."""
        import kernels  # which needs Triton
        from kernels.family import run_lowered

        if "kernel" not in self.forms:
            raise NotImplementedError(f"{self.title}: {self.missing['kernel']}")
        if self.public:
            return getattr(kernels, self.public)(
                *tensors, **options, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                cu_seqlens=cu_seqlens,
            )  # fmt: skip
        low = self.lowered(*tensors, scale=scale, initial_state=initial_state, cu_seqlens=cu_seqlens, **options)
        o, state = low.finish(*run_lowered(low))
        return o.to(self._values(tensors).dtype), state if output_final_state else None

    def matrix(
        self, *tensors: Tensor, scale=None, initial_state=None, output_final_state=False, **options
    ) -> tuple[Tensor, Any]:
        """The matrix form: the mixing matrix of :func:`mixing_matrix`, times all values at once."""
        low = self.lowered(*tensors, scale=scale, initial_state=initial_state, **options)
        M, W = mixing_matrix(low)
        v = low.values.transpose(1, 2)
        o, S = M @ v, W @ v
        if low.state is not None:
            carried, left = _run(low, torch.zeros_like(low.values), low.state)
            o, S = o + carried.transpose(1, 2), S + left
        o, state = low.finish(o.transpose(1, 2), S)
        return o.to(self._values(tensors).dtype), state if output_final_state else None

    def step(self, *tensors: Tensor, scale=None, state=None, **options) -> tuple[Tensor, Any]:
        """Decoding: one token, T = 1, and the state before it (None: none); (o, the state after it)."""
        low = self.lowered(*tensors, scale=scale, initial_state=state, **options)
        if self._values(tensors).shape[1] != self._steps_of_values():
            raise ValueError(f"step: expected one token, got tensors of shape {tuple(self._values(tensors).shape)}")
        o, S = _run(low, low.values, _initial(low))
        o, state = low.finish(o, S)
        return o.to(self._values(tensors).dtype), state

    def lowered(self, *tensors: Tensor, scale=None, initial_state=None, cu_seqlens=None, **options) -> Lowered:
        """The rule's arguments, checked, as one of the two recurrences."""
        if len(tensors) > len(self.inputs) or any(not i.optional for i in self.inputs[len(tensors) :]):
            names = ", ".join(i.name + " = None" * i.optional for i in self.inputs)
            raise TypeError(f"{self.title}: expected {names}, got {len(tensors)} tensors")
        tensors = (*tensors, *(None,) * (len(self.inputs) - len(tensors)))
        sizes: dict[str, int] = {}
        arguments = {
            i.name: (t, i.axes, complex) if "complex" in i.kind else (t, i.axes) for i, t in zip(self.inputs, tensors)
        }
        for i, t in zip(self.inputs, tensors):
            if t is None and not i.optional:
                raise TypeError(f"{i.name}: expected a torch tensor, got None")
        checked = _loop.take(sizes, **arguments)
        for i, t in zip(self.inputs, checked):
            if i.kind in ("log-decay", "rate", "complex rate") and t is not None:
                log_decay(i.name, t.real if t.is_complex() else t)
            elif i.kind == "step":
                step_size(i.name, t)
        sequences = Sequences(sizes["B"], sizes["T"], cu_seqlens)
        if self.has_scale:
            options["scale"] = scale
        elif scale is not None:
            raise TypeError(f"scale: {self.title} has none, got {scale}")
        return self.lower(*checked, state=initial_state, sequences=sequences, sizes=sizes, **options)

    def flops(self, K: int, V: int) -> int:
        """FLOPs a token and head of the recurrence the rule is lowered to; a multiplication and an addition are two.

        Leading terms: the state's decay, erasing, writing and reading, not what makes gates, keys and queries.
        """
        heads, K, V = self.carrier(K, V)
        decay = 0 if self.decay_axis == "none" else K * V
        erase = self.erases * (2 * K * V + V) if self.family == "delta" else 0
        return heads * (decay + erase + self.substeps * 2 * K * V + 2 * K * V)

    def chunked_flops(self, K: int, V: int, C: int) -> int:
        """The same of the chunked form with chunks of C tokens, whole blocks counted."""
        heads, K, V = self.carrier(K, V)
        n = self.substeps
        scores, values, states = 2 * n * C * K, 2 * n * C * V, 2 * n * K * V + 2 * K * V
        if self.family == "additive":
            return heads * (scores + values + states)
        # The erase scores, the triangular solve of C equations for K + V right sides, its part of the state.
        return heads * (scores + values + states + n * (2 * n * C * K + n * C * (K + V) + 2 * K * V))

    def _values(self, tensors: tuple) -> Tensor:
        return next(t for i, t in zip(self.inputs, tensors) if i.name in ("v", "x"))

    def _steps_of_values(self) -> int:
        return self.substeps if any("T*n" in i.axes for i in self.inputs) else 1


def mixing_matrix(low: Lowered) -> tuple[Tensor, Tensor]:
    """(M, W): o = M v and S_T = W v from a state of zeros. M (B, HV, T, T), W (B, HV, K, T).

    The recurrence is linear in the values, so it is run on the unit vectors of time.
    """
    B, T, H, _ = low.v.shape
    units = torch.eye(T, dtype=low.v.dtype, device=low.v.device)[None, :, None].expand(B, T, H, T)
    o, S = _run(low, units, low.v.new_zeros(B, H, low.k.shape[-1], T))
    return o.transpose(1, 2), S


def _initial(low: Lowered) -> Tensor:
    if low.state is not None:
        return low.state
    return low.v.new_zeros(low.v.shape[0], low.v.shape[2], low.k.shape[-1], low.values.shape[-1])


def _run(low: Lowered, v: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence itself, token by token, with the values v (B, T, HV, ·) from the state S."""
    q, k = _loop.heads(low.q, v.shape[2]), _loop.heads(low.k, v.shape[2])
    o = []
    for t in range(v.shape[1]):
        held = S
        if low.g is not None:
            alpha = low.g[:, t].exp()
            S = alpha.reshape(*alpha.shape[:2], -1, 1) * S
        write = v[:, t]
        if low.e is not None:
            write = write - _loop.read(held if low.erase_before_decay else S, low.e[:, t])
        S = S + _loop.outer(k[:, t], write)
        o.append(low.scale * _loop.read(S, q[:, t]))
    return _loop.stack(o, v), S
