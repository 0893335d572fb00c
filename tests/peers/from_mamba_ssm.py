"""mamba_ssm's references (Dao and Gu, Apache-2.0), installed without its compiled parts."""

import math
import sys
from types import ModuleType

import torch

sys.modules.setdefault("selective_scan_cuda", ModuleType("selective_scan_cuda"))  # imported there, not called here

from mamba_ssm.modules.ssd_minimal import ssd_minimal_discrete  # noqa: E402
from mamba_ssm.ops.selective_scan_interface import selective_scan_ref  # noqa: E402
from mamba_ssm.ops.triton.mamba3.mamba3_mimo_rotary_step import (  # noqa: E402
    apply_rotary_qk_inference_reference,
)
from mamba_ssm.ops.triton.ssd_combined import ssd_chunk_scan_combined_ref  # noqa: E402

from tests.peers import inputs, mamba3_step  # noqa: E402
from tests.peers.peer import Peer  # noqa: E402

mamba3_siso_step = mamba3_step.interpreted_step()


def s4(x, dt, A, B, C, D):
    """Twice the real part is theirs, for one of each pair of conjugate entries: C is halved."""
    step = dt[:, None].expand(x.shape[0], -1, x.shape[1])
    y, h = selective_scan_ref(x.mT, step, A, B, C / 2, D, return_last_state=True)
    return y.mT, h


def mamba1(x, dt, A, B, C, D):
    y, h = selective_scan_ref(x.mT, dt.mT, A, B.mT, C.mT, D, return_last_state=True)
    return y.mT, h


def ssd(x, log_decays, B, C, state):
    """[B, T, H, ·]: the state goes in and comes out with its values first."""
    B, C = (m.expand(*x.shape[:3], -1) for m in (B, C))
    return ssd_minimal_discrete(x, log_decays, B, C, 32, state[:, None])


def mamba2(x, dt, A, B, C, D, initial_state):
    y, S = ssd(x * dt[..., None], A * dt, B, C, initial_state.mT)
    return y + D[:, None] * x, S.mT


def chunk_scan(x, dt, A, B, C, D):
    return ssd_chunk_scan_combined_ref(x, dt, A, B, C, 32, D), None


def mamba3_kernel(x, dt, A, lam, B, C, theta, D, initial_state):
    S, B_last, x_last = initial_state
    start = (torch.zeros_like(theta[:, 0]), S.mT.contiguous(), B_last, x_last)
    angles = torch.atanh(-theta / math.pi)
    y, (angle, S, B_last, x_last) = mamba3_step.run(
        mamba3_siso_step, x, dt, A, torch.logit(lam), B, C, angles, D, start
    )
    return y, (turned_back(S, angle).mT, turned_back(B_last[:, :, None], angle)[:, :, 0], x_last)


def mamba3_two_ssd(x, dt, A, lam, B, C, theta, D, initial_state):
    """The rotation and the two writes, of this token and of the one before, are theirs, each write an SSD."""
    S, B_last, x_last = initial_state
    angle, turned = torch.zeros_like(theta[:, 0]), []
    for t in range(x.shape[1]):
        heads = (m[:, t, None].expand(-1, -1, x.shape[2], -1) for m in (C, B))  # (B, rank 1, H, N)
        *both, angle = apply_rotary_qk_inference_reference(*heads, angle, torch.atanh(-theta[:, t] / math.pi), dt[:, t])
        turned.append(torch.stack([m[:, 0] for m in both]))
    C_turned, B_turned = torch.stack(turned, 2)
    B_before = torch.cat([B_last[:, None], B_turned[:, :-1]], 1)
    x_before = torch.cat([x_last[:, None], x[:, :-1]], 1)
    g = dt * A
    now, S_now = ssd((lam * dt)[..., None] * x, g, B_turned, C_turned, S.mT)
    before, S_before = ssd(((1 - lam) * dt * g.exp())[..., None] * x_before, g, B_before, C_turned, 0 * S.mT)
    S = turned_back(S_now + S_before, angle).mT
    return now + before + D[:, None] * x, (S, B[:, -1].expand_as(B_last), x[:, -1])


def turned_back(x, angle):
    """Theirs keeps state and last key turned by the angles so far, ours as they are. x (B, H, ·, N)."""
    x, zero = x.transpose(1, 2), torch.zeros_like(angle)
    return apply_rotary_qk_inference_reference(x, x, angle, zero, zero[..., 0], conjugate=True)[0].transpose(1, 2)


ROTATION_NOTE = "turns B and C by the angles so far, pi tanh(angle) each, against our theta: theta = -pi tanh(angle)"

PEERS = [
    Peer("s4", selective_scan_ref, inputs.s4, s4, initial=False, note="returns twice the real part: C is halved"),
    Peer("mamba-1", selective_scan_ref, inputs.mamba1, mamba1, initial=False),
    Peer(
        "mamba-2",
        ssd_minimal_discrete,
        inputs.mamba2,
        mamba2,
        precision="given",
        T=96,
        note="has no step size and no skip: dt is put into x and A, D x is added",
    ),
    Peer("mamba-2", ssd_chunk_scan_combined_ref, inputs.mamba2, chunk_scan, T=96, initial=False),
    Peer(
        "mamba-3",
        mamba3_siso_step,
        inputs.mamba3,
        mamba3_kernel,
        precision="float32",
        T=20,
        differentiable=False,
        note=f"Triton kernel, interpreted; read from its state; {ROTATION_NOTE}",
    ),
    Peer(
        "mamba-3",
        apply_rotary_qk_inference_reference,
        inputs.mamba3,
        mamba3_two_ssd,
        precision="given",
        T=96,
        note=f"and ssd_minimal_discrete, once for each of the two writes; {ROTATION_NOTE}",
    ),
]
