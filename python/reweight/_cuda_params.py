"""The structs that the kernels of the GPU take, one parameter each.

They are those of the Go package gpu, with its names in snake_case and its types: an
address is a number of 64 bits, 0 where there is no array. The fields follow each other
without gaps. What each means is said in gpu/*.go and gpu/internal/device.
"""

from ctypes import Structure, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64

_Ptr = c_uint64


def _pointers(names: str) -> list[tuple[str, type[c_uint64]]]:
    return [(name, _Ptr) for name in names.split()]


# ---- Rows of logits ----


class RowsParams(Structure):
    _fields_ = [
        ("logits", _Ptr),
        ("stride", c_int64),  # bytes
        ("count", c_int64),
        ("index", _Ptr),
        ("selected", c_int64),
        ("ids", _Ptr),
        ("status", _Ptr),
        ("temperature", c_double),
        ("vocab", c_int32),
        ("wide_ids", c_uint32),
    ]


class TokenStatsParams(Structure):
    _fields_ = [*_pointers("exact lse entropy logprob"), ("rows", RowsParams)]


class RowGradientParams(Structure):
    _fields_ = [
        *_pointers("exact dst"),
        ("dst_stride", c_int64),  # bytes
        *_pointers("logprobs entropy grad grad_entropy"),
        ("bonus", c_double),
        ("rows", RowsParams),
    ]


# ---- Tokens ----


class MultiplyParams(Structure):
    _fields_ = [*_pointers("dst a b"), ("n", c_int64)]


class MomentsParams(Structure):
    _fields_ = [*_pointers("x role result status"), ("n", c_int64), ("shift", c_double), ("roles", c_uint64)]


class Values(Structure):
    """What a kernel makes of two arrays: a, -a or a - b."""

    _fields_ = [*_pointers("a b"), ("form", c_uint64)]


class SpreadParams(Structure):
    _fields_ = [
        ("signal", Values),
        *_pointers("role result curve status"),
        ("n", c_int64),
        ("eps", c_double),
        ("first", c_int64),
    ]


class WeightsParams(Structure):
    _fields_ = [
        ("dst", _Ptr),
        ("signal", Values),
        *_pointers("role curve status"),
        ("n", c_int64),
        ("mean", c_double),
        ("sigma", c_double),
        ("alpha", c_float),
        ("beta", c_float),
    ]


class WhitenSpreadParams(Structure):
    _fields_ = [*_pointers("x role scale status"), ("n", c_int64)]


class WhitenParams(Structure):
    _fields_ = [*_pointers("dst x role scale"), ("n", c_int64)]


class Segments(Structure):
    _fields_ = [("offsets", _Ptr), ("count", c_int64), ("tokens", c_int64)]


class SurrogateParams(Structure):
    _fields_ = [
        *_pointers("grad logprobs old advantages weights role sums counts status"),
        ("segments", Segments),
        ("low", c_float),
        ("high", c_float),
        ("dual", c_float),
        ("scale", c_float),
    ]


class SurrogateTotalParams(Structure):
    _fields_ = [("of", SurrogateParams), ("result", _Ptr)]


class LossParams(Structure):
    _fields_ = [
        ("of", SurrogateParams),
        *_pointers("reference offsets"),
        ("trajectories", c_int64),
        *_pointers("segments state result"),
        ("aggregation", c_int64),
        ("norm_length", c_int64),
    ]


# ---- Spans and trajectories ----


class RangesParams(Structure):
    _fields_ = [("offsets", _Ptr), ("count", c_int64), ("size", c_int64), ("status", _Ptr)]


class SpanMeansParams(Structure):
    _fields_ = [*_pointers("dst x"), ("ranges", RangesParams)]


class MinMaxParams(Structure):
    _fields_ = [*_pointers("lo hi x"), ("ranges", RangesParams)]


class ExpScaleParams(Structure):
    _fields_ = [*_pointers("dst x"), ("n", c_int64), ("rate", c_double), ("lo", c_float), ("_", c_uint32)]


class LayoutParams(Structure):
    _fields_ = [
        *_pointers("role offsets"),
        ("tokens", c_int64),
        ("trajectories", c_int64),
        *_pointers("problem status"),
    ]


class AEMParams(Structure):
    _fields_ = [
        ("layout", LayoutParams),
        *_pointers("factors entropy span_ids group_ids"),
        ("lambda", c_double),
        ("guard", c_double),
        ("scope", c_int64),
        ("most_spans", c_int64),
        *_pointers("values"),  # scratch from here on
        *_pointers("tops firsts counts scopes places sizes"),
        *_pointers("responses ends spots means sorted"),
    ]


class GRPOParams(Structure):
    _fields_ = [
        ("layout", LayoutParams),
        *_pointers("advantages rewards group_ids scores"),
        ("eps", c_double),
        ("divide_by_std", c_int64),
    ]


class GAEParams(Structure):
    _fields_ = [
        ("layout", LayoutParams),
        *_pointers("advantages returns rewards values"),
        ("gamma", c_double),
        ("decay", c_double),
    ]
