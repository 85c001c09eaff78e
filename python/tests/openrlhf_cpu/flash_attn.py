"""Stands for the package of this name, of which OpenRLHF takes what moves tokens to and from packed rows."""

import sys

import no_gpu  # noqa: F401
from einops import rearrange  # noqa: F401

__version__ = "2.8.3"
__path__ = []
sys.modules[__name__ + ".bert_padding"] = sys.modules[__name__ + ".utils"] = sys.modules[__name__]
sys.modules[__name__ + ".utils.distributed"] = sys.modules[__name__]


def index_first_axis(x, indices):
    return x[indices]


def unpad_input(x, mask):
    """x [B, T, ...] without padding, [tokens, ...], where its tokens stood, and three numbers that nobody reads."""
    indices = mask.flatten().nonzero().flatten()
    return x.flatten(0, 1)[indices], indices, None, None, None


def pad_input(x, indices, batch, length):
    """x [tokens, ...] as [batch, length, ...]."""
    return x.new_zeros(batch * length, *x.shape[1:]).index_copy(0, indices, x).unflatten(0, (batch, length))


def all_gather(x, group):
    raise NotImplementedError("ring attention")
