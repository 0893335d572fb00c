"""Inputs and pieces of equations that many records share."""

from lineage_lib.rules.record import Input

Q, K = Input("q", "B T H K", "vector"), Input("k", "B T H K", "key")
V = Input("v", "B T HV V", "vector")
G_HEAD, G_CHANNEL = Input("g", "B T HV", "log-decay"), Input("g", "B T HV K", "log-decay")
BETA = Input("beta", "B T HV", "strength")
SKIP_HEAD, SKIP_CHANNEL = Input("D", "H", "weight", optional=True), Input("D", "P", "weight", optional=True)

READ = r"\mathbf S_t^\top \mathbf q_t"
READ_BEFORE = (
    r"\big(\mathbf S_{t-1} + \operatorname{diag}(\mathbf u)\, \mathbf k_t \mathbf v_t^\top\big)^\top \mathbf q_t"
)
ADD = r"\mathbf k_t \mathbf v_t^\top"
CORRECT = r"\mathbf I - \beta_t \mathbf k_t \mathbf k_t^\top"
CORRECTED = r"\beta_t \mathbf k_t \mathbf v_t^\top"
DIAG = r"\operatorname{diag}(\boldsymbol\alpha_t)"

NO_KERNEL = {"kernel": "the Triton kernels erase where they write, and after the decay"}
NEVER = "no: every eigenvalue is 1"
SHRINKS = "no: it shrinks, or keeps, every direction"
DELTA_READS = "The error is taken against the decayed state, and the new write is not decayed."
