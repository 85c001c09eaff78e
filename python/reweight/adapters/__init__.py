"""The schemes of the catalogue in the trainers that people use: ActFocus, AEM, GTPO and others.

Let A be the advantage of a token: the trainer's, or in its place the one of a scheme which makes
advantages, such as RLOO. Let f be the product of the factors of the scheme (AEM), and w the product
of its weights (ActFocus). The loss l of a token is homogeneous in its advantage in most
trainers: for m >= 0, l(m A) = m l(A). This holds for the clipped surrogate of PPO, with dual
clip too, for CISPO, and for a ratio per sequence as in GSPO. f and w can therefore be
multiplied into the advantages, and the loss of the trainer stays as it is. What differs is the
number by which the sum of the tokens' losses is divided. Let N and N_s be the response tokens
of the batch and of trajectory s, and S the trajectories that have one:

    aggregation                wanted                          the trainer's loss            m
    token_mean                 sum w l(f A) / sum w            sum l(m A) / N                w f N / sum w
    seq_mean_token_mean        mean_s sum_s w l(f A) / sum_s w mean_s sum_s l(m A) / N_s     w f N_s / sum_s w
    seq_mean_token_sum         sum w l(f A) / S                sum l(m A) / S                w f
    seq_mean_token_sum_norm    sum w l(f A) / length           sum l(m A) / length           w f
    token_sum                  sum w l(f A)                    sum l(m A)                    w f

token_advantages computes m A. Each module of this package puts it into one trainer, by one
method of that trainer: reweight.adapters.verl, trl, axolotl, ms_swift, openrlhf, tinker, nemo_rl,
slime, prime_rl, skyrl. None of them is imported here, and none imports its trainer before its install is called.

The sums, and all means and groups of the schemes, are taken over the batch that the
trainer hands over at once. A trainer that then divides it into mini-batches divides the
loss of each by its own N. A penalty on the divergence from the reference, or a bonus on
the entropy, is not part of l, and stays as the trainer has it.
"""

from ._advantages import token_advantages
from ._credit import Credit
from ._hooks import HookError, when_imported

__all__ = ["Credit", "HookError", "token_advantages", "when_imported"]
