"""cuDNN's functions on graphs, cudnnGnn*, on a GPU, against formulas in float64, and gradients against differences.

Versions of cuDNN without these functions report that; then the tests compare nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.gradients import differences
from offload_args import In, cudnn, offload_args
from offload_args.errors import ArgumentError, DTypeError, ExtentError, LibraryVersionError

LIBRARY = "cudnn"

Array = Any
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]
CLOSE = {np.dtype(np.float32): 2e-5, np.dtype(np.float16): 4e-3, BFLOAT16: 3e-2}

# Edges from 5 nodes to 4 targets, grouped by target. The second target has no edges.
OFFSETS, SOURCES = np.array([0, 2, 2, 6, 7]), np.array([0, 3, 1, 0, 4, 1, 2])
NODES, TARGETS, EDGES = 5, 4, len(SOURCES)
TARGET_OF = np.repeat(np.arange(TARGETS), np.diff(OFFSETS))
PLACES = np.array([3, 0, 6, 1, 5, 2, 4])  # places of the edges in arrays with another order


def drawn(dtype: Any, *shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def exact(array: Array | None) -> Array:
    return None if array is None else np.asarray(array, np.float64)


def close(array: Array, expected: Array, dtype: Any) -> None:
    bound = CLOSE[np.dtype(dtype)] * max(float(np.abs(expected).max(initial=0)), 1.0)
    np.testing.assert_allclose(np.asarray(array, np.float64), expected, rtol=0, atol=bound)


def graph(index: Any, mapped: bool = False, reverse: bool = False) -> dict[str, Any]:
    """Return the fields of the graph; reverse: also the fields that make gradients reproducible."""
    places = PLACES if mapped else np.arange(EDGES)
    backwards = np.argsort(SOURCES, kind="stable")
    return {
        "cscOffsets": OFFSETS.astype(index),
        "cscIndices": SOURCES.astype(index),
        "mapCscToCoo": PLACES.astype(index) if mapped else None,
        "mapRevToCoo": places[backwards].astype(index) if reverse else None,
        "nSrcNodes": NODES,
        "nDstNodes": TARGETS,
        "nIndices": EDGES,
        "idxType": np.dtype(index),
        "cscRevOffsets": np.searchsorted(SOURCES[backwards], np.arange(NODES + 1)).astype(index) if reverse else None,
    }


def called(gpu: str, name: str, read: dict[str, Any], written: dict[str, Array | None], **rest: Any) -> bool:
    """Call a function; return whether this version has it. Arrays of NaN in `written` are NaN on the device, too."""
    arguments = {key: value for key, value in (read | written).items() if isinstance(value, np.ndarray)}
    listed = [In(value) if key in read else value for key, value in arguments.items()]
    with offload_args(*listed, device=gpu) as pointers:
        lent = dict(zip(arguments, pointers, strict=True))
        for key in written.keys() & arguments.keys():
            if arguments[key].dtype.kind not in "iu" and np.isnan(arguments[key]).any():
                lent[key].fill(np.nan)
        try:
            getattr(cudnn, name)(**(read | written | lent | rest))
        except LibraryVersionError as error:
            assert "has no cudnnGnn" in str(error)
            return False
    return True


@contextmanager
def case_of(text: str) -> Iterator[None]:
    """Add the case to the notes of an exception."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {text}")
        raise


def unset(dtype: Any, *shape: int) -> Array:
    return np.full(shape, np.nan, dtype)


# -- aggregation -------------------------------------------------------------------------------------------------------

AGGREGATIONS = {
    cudnn.GNN_AGG_SUM: "sum",
    cudnn.GNN_AGG_MEAN: "mean",
    cudnn.GNN_AGG_MAX: "max",
    cudnn.GNN_AGG_MIN: "min",
}
OF_NODES, OF_EDGES, BESIDE = 3, 2, 2  # numbers of features


def weights(aggregation: int, features: Array) -> Array:
    """Return the weight of each row."""
    weights = np.zeros_like(features)
    match aggregation:
        case cudnn.GNN_AGG_SUM:
            weights[:] = 1
        case cudnn.GNN_AGG_MEAN:
            weights[:] = 1 / len(features)
        case _:
            best = features.argmax(0) if aggregation == cudnn.GNN_AGG_MAX else features.argmin(0)
            weights[best, np.arange(features.shape[1])] = 1
    return weights


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_neighbours_are_aggregated_and_so_are_gradients(gpu: str, dtype: Any, index: Any) -> None:
    for aggregation, mapped in product(AGGREGATIONS, (False, True)):
        with case_of(f"{AGGREGATIONS[aggregation]}, edges in {'another' if mapped else 'that'} order"):
            check_aggregation(gpu, dtype, index, aggregation, mapped)


def check_aggregation(gpu: str, dtype: Any, index: Any, aggregation: int, mapped: bool) -> None:
    nodes, edges, beside = (
        drawn(dtype, NODES, OF_NODES),
        drawn(dtype, EDGES, OF_EDGES, seed=2),
        drawn(dtype, TARGETS, BESIDE, seed=3),
    )
    features = OF_NODES + OF_EDGES
    output = unset(dtype, TARGETS, features + BESIDE)
    chooses = aggregation in (cudnn.GNN_AGG_MAX, cudnn.GNN_AGG_MIN)
    positions = np.full((TARGETS, features), -9, index) if chooses else None
    rest = {"nodeFeatDim": OF_NODES, "edgeFeatDim": OF_EDGES, "concatFeatDim": BESIDE}
    rest |= {"dataType": dtype, "aggOp": aggregation}
    read = graph(index, mapped) | {"nodeFeatures": nodes, "edgeFeatures": edges, "concatFeatures": beside}
    written = {"output": output, "outPositions": positions}
    if not called(gpu, "gnn_agg_simple_forward", read, written, **rest):
        return
    places = PLACES if mapped else np.arange(EDGES)
    of_edge = np.concatenate([exact(nodes)[SOURCES], exact(edges)[places]], axis=1)
    expected, of_nodes, of_edges = (
        np.zeros((TARGETS, features)),
        np.zeros((NODES, OF_NODES)),
        np.zeros((EDGES, OF_EDGES)),
    )
    gradient = drawn(dtype, TARGETS, features + BESIDE, seed=4)
    for target in range(TARGETS):
        own = slice(OFFSETS[target], OFFSETS[target + 1])
        counts = weights(aggregation, of_edge[own]) if own.stop > own.start else np.zeros((0, features))
        expected[target] = (counts * of_edge[own]).sum(0)
        shares = counts * exact(gradient)[target, :features]
        np.add.at(of_nodes, SOURCES[own], shares[:, :OF_NODES])
        of_edges[places[own]] = shares[:, OF_NODES:]
    close(output[:, :features], expected, dtype)
    assert np.array_equal(output[:, features:], beside)
    to_nodes, to_edges, to_beside = np.zeros_like(nodes), np.zeros_like(edges), np.zeros_like(beside)
    read = graph(index, mapped) | {"gradOutput": gradient, "outPositions": positions}
    written = {"gradNodeFeatures": to_nodes, "gradEdgeFeatures": to_edges, "gradConcatFeatures": to_beside}
    assert called(gpu, "gnn_agg_simple_backward", read, written, **rest)
    close(to_nodes, of_nodes, dtype)
    close(to_edges, of_edges, dtype)
    assert np.array_equal(to_beside, gradient[:, features:])


# -- attention ---------------------------------------------------------------------------------------------------------

HEADS, FEATURES, ALPHA = 2, 6, 0.25
ACTIVATIONS: dict[int, Callable[[Array], Array]] = {
    cudnn.GNN_ACT_LINEAR: lambda z: z,
    cudnn.GNN_ACT_RELU: lambda z: np.maximum(z, 0),
    cudnn.GNN_ACT_SIGMOID: lambda z: 1 / (1 + np.exp(-z)),
    cudnn.GNN_ACT_TANH: np.tanh,
    cudnn.GNN_ACT_ELU: lambda z: np.where(z > 0, z, np.expm1(z)),
    cudnn.GNN_ACT_SCALAR: lambda z: ALPHA * z,
    cudnn.GNN_ACT_LEAKY_RELU: lambda z: np.where(z > 0, z, ALPHA * z),
}


@dataclass(frozen=True)
class Case:
    second: bool  # GATv2
    dtype: Any = FLOATS[0]
    gradients: Any = FLOATS[0]
    index: Any = np.int32
    activation: int = cudnn.GNN_ACT_LEAKY_RELU
    concatenated: bool = True
    has_edges: bool = True
    has_dropout: bool = False
    mapped: bool = False
    deterministic: bool = False

    def __str__(self) -> str:
        words = ["GATv2" if self.second else "GAT", str(self.dtype), np.dtype(self.index).name, str(self.activation)]
        flags = ("concatenated", "has_edges", "has_dropout", "mapped", "deterministic")
        return " ".join([*words, *(flag for flag in flags if getattr(self, flag))])

    @property
    def name(self) -> str:
        return f"gnn_mha_gat_{'v2_' * self.second}"

    @property
    def of_edges(self) -> int:
        return FEATURES if self.second else 4 if self.has_edges else 0

    @property
    def rest(self) -> dict[str, Any]:
        actual = {"dimNode": FEATURES, "activation": self.activation, "activationAlpha": ALPHA, "numHeads": HEADS}
        actual |= {"concatHeads": int(self.concatenated), "dataType": self.dtype}
        return actual if self.second else actual | {"dimEdge": self.of_edges}

    @property
    def gradient_types(self) -> dict[str, Any]:
        if self.second:
            return {"gradType": self.gradients}
        return {"gradDataType": self.gradients, "gradWeightType": self.gradients}


def every_case() -> list[Case]:
    cases = []
    for second in (False, True):
        cases += [Case(second, activation=activation) for activation in ACTIVATIONS]
        cases += [
            Case(second, concatenated=False, has_dropout=True),
            Case(second, index=np.int64, has_edges=False, deterministic=True),
            Case(second, index=np.int64, has_dropout=True, mapped=True, deterministic=True),
            Case(second, concatenated=False, has_dropout=True, mapped=True),
            Case(second, FLOATS[1], FLOATS[1], has_dropout=True),
            Case(second, FLOATS[1], FLOATS[0], has_dropout=True),
            Case(second, BFLOAT16, BFLOAT16, index=np.int64, deterministic=True),
        ]
    return cases


def attention(case: Case, nodes: Array, targets: Array, edges: Array | None, weight: Array) -> tuple[Array, ...]:
    """Return logits and coefficients by head and edge, and GATv2's values of each edge before the logits."""
    own = edges if edges is None or not case.mapped else edges[PLACES]
    activate = ACTIVATIONS[case.activation]
    if case.second:
        of_edge = activate(nodes[SOURCES] + targets[TARGET_OF] + (0 if own is None else own))
        logits = (of_edge * weight).reshape(EDGES, HEADS, -1).sum(2)
    else:
        of_edge = np.zeros(0)
        parts = [nodes[SOURCES], targets[TARGET_OF], *([] if own is None else [own])]
        shares = np.split(weight, np.cumsum([part.shape[1] for part in parts])[:-1])
        sums = [(a * b).reshape(EDGES, HEADS, -1).sum(2) for a, b in zip(parts, shares, strict=True)]
        logits = activate(np.sum(sums, axis=0))
    powers = np.exp(logits)
    totals = np.zeros((TARGETS, HEADS))
    np.add.at(totals, TARGET_OF, powers)
    return logits.T, (powers / totals[TARGET_OF]).T, of_edge


def placed(case: Case, values: Array, axis: int) -> Array:
    """Return values, given in the order of the graph, in the order of the edges' arrays."""
    return np.take(values, np.argsort(PLACES), axis) if case.mapped else values


def attended(case: Case, mask: Array | None, nodes: Array, *others: Array | None) -> tuple[Array, Array]:
    """Return the output, and the coefficients for it in the order of the edges' arrays."""
    _, coefficients, _ = attention(case, nodes, *others)  # type: ignore[arg-type]
    if mask is not None:
        coefficients = coefficients * (mask[:, PLACES] if case.mapped else mask)
    by_head = np.zeros((TARGETS, HEADS, FEATURES // HEADS))
    np.add.at(by_head, TARGET_OF, coefficients.T[:, :, None] * nodes[SOURCES].reshape(EDGES, HEADS, -1))
    output = by_head.reshape(TARGETS, FEATURES) if case.concatenated else by_head.mean(1)
    return output, placed(case, coefficients, 1)


def compiled() -> list[Any]:
    """Return the combinations of types in the cases. cuDNN compiles each combination for up to a minute."""
    results = dict.fromkeys((case.second, case.dtype, case.gradients, case.index) for case in every_case())
    plain = (FLOATS[0], FLOATS[0], np.int32)
    return [
        pytest.param(
            *case,
            id=f"{'GATv2' if case[0] else 'GAT'} {case[1]} {case[2]} {np.dtype(case[3])}",
            marks=[] if case[1:] == plain else [pytest.mark.slow],
        )
        for case in results
    ]


@pytest.mark.parametrize(("second", "dtype", "gradients", "index"), compiled())
def test_an_attention_on_a_graph_and_its_gradients(
    gpu: str, second: bool, dtype: Any, gradients: Any, index: Any
) -> None:
    for case in every_case():
        if (case.second, case.dtype, case.gradients, case.index) == (second, dtype, gradients, index):
            with case_of(str(case)):
                check_attention(gpu, case)
    if (dtype, gradients, index) == (FLOATS[0], FLOATS[0], np.int32):
        check_one_array_of_both_gradients(gpu, Case(second, has_edges=False))


def check_one_array_of_both_gradients(gpu: str, case: Case) -> None:
    """Check that if sources and targets are the same nodes, both gradients may be one array, which gets their sum."""
    nodes, weight = drawn(np.float32, TARGETS, FEATURES), drawn(np.float32, (2 - case.second) * FEATURES, seed=2)
    fields = graph(np.int32) | {"cscIndices": (SOURCES % TARGETS).astype(np.int32), "nSrcNodes": TARGETS}
    read = fields | {"srcFeatures": nodes, "dstFeatures": nodes, "edgeFeatures": None, "attnWeights": weight}
    read["dropoutMask"] = None
    kept = {"smScores": unset(np.float32, 2, HEADS, EDGES)}
    kept |= {"actScores": unset(np.float32, EDGES, FEATURES)} if case.second else {}
    if not called(gpu, f"{case.name}forward", read, {"output": np.zeros_like(nodes)} | kept, **case.rest):
        return
    of_sources, of_targets, of_both = (unset(np.float32, TARGETS, FEATURES) for _ in range(3))
    read |= {"gradOut": drawn(np.float32, TARGETS, FEATURES, seed=3), "gradAttention": None} | kept
    rest: dict[str, Any] = {"gradEdgeFeatures": None, "gradWspaceFeat": None, "gradWspaceWeights": None}
    for sources, targets in ((of_sources, of_targets), (of_both, of_both)):
        written = {"gradSrcFeatures": sources, "gradDstFeatures": targets, "gradWeights": np.zeros_like(weight)}
        written["gradSmScores"] = np.zeros((2, HEADS, EDGES), np.float32)
        assert called(gpu, f"{case.name}backward", read, written | rest, **case.rest, **case.gradient_types)
    close(of_both, exact(of_sources) + exact(of_targets), np.float32)


def check_attention(gpu: str, case: Case) -> None:
    width = 2 * FEATURES + case.of_edges if not case.second else FEATURES
    edges = drawn(case.dtype, EDGES, case.of_edges, seed=3) if case.has_edges else None
    operands = [drawn(case.dtype, NODES, FEATURES), drawn(case.dtype, TARGETS, FEATURES, seed=2), edges]
    operands.append(drawn(case.dtype, width, seed=4))
    mask = (drawn(np.float32, HEADS, EDGES, seed=5) > 0).astype(np.float32) * 1.5 if case.has_dropout else None
    output = unset(case.dtype, TARGETS, FEATURES if case.concatenated else FEATURES // HEADS)
    scores, of_edges = unset(np.float32, 2, HEADS, EDGES), unset(case.dtype, EDGES, FEATURES)
    names = ("srcFeatures", "dstFeatures", "edgeFeatures", "attnWeights")
    read = graph(case.index, case.mapped, case.deterministic) | dict(zip(names, operands, strict=True))
    read["dropoutMask"] = mask
    kept = {"smScores": scores} | ({"actScores": of_edges} if case.second else {})
    if not called(gpu, f"{case.name}forward", read, {"output": output} | kept, **case.rest):
        return
    values = [exact(operand) for operand in operands]
    logits, coefficients, activated = attention(case, *values)  # type: ignore[arg-type]
    close(output, attended(case, exact(mask), *values)[0], case.dtype)
    close(scores, np.stack([placed(case, logits, 1), placed(case, coefficients, 1)]), case.dtype)
    if case.second:
        close(of_edges, placed(case, activated, 0), case.dtype)

    above = drawn(case.dtype, *output.shape, seed=6)
    beside = drawn(np.float32, HEADS, EDGES, seed=7) if case.has_dropout else None  # for the coefficients

    def loss(*arrays: Array) -> float:
        result, weights = attended(case, exact(mask), *arrays)
        return float((result * exact(above)).sum() + (0 if beside is None else (weights * exact(beside)).sum()))

    like = [None if operand is None else unset(case.gradients, *operand.shape) for operand in operands]
    names = ("gradSrcFeatures", "gradDstFeatures", "gradEdgeFeatures", "gradWeights")
    written = dict(zip(names, like, strict=True)) | {"gradSmScores": np.zeros((2, HEADS, EDGES), np.float32)}
    room = case.deterministic
    written["gradWspaceFeat"] = np.zeros((EDGES, FEATURES), case.gradients) if room else None
    written["gradWspaceWeights"] = np.zeros((TARGETS, width), case.gradients) if room else None
    read |= {"gradOut": above, "gradAttention": beside} | kept
    assert called(gpu, f"{case.name}backward", read, written, **case.rest, **case.gradient_types)
    coarse = max(case.dtype, case.gradients, key=lambda case: CLOSE[np.dtype(case)])
    for actual, expected in zip(like, differences(loss, values), strict=True):
        if expected is not None:
            close(actual, expected, coarse)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_arrays_and_sizes_of_a_graph_that_do_not_fit_are_refused_by_name(gpu: str) -> None:
    nodes, output = drawn(np.float32, NODES, OF_NODES), np.zeros((TARGETS, OF_NODES), np.float32)
    rest = {"nodeFeatDim": OF_NODES, "edgeFeatDim": 0, "concatFeatDim": 0, "dataType": np.float32, "aggOp": 0}
    good = graph(np.int32) | {"nodeFeatures": nodes, "edgeFeatures": None, "concatFeatures": None}
    written = {"output": output, "outPositions": None}
    if not called(gpu, "gnn_agg_simple_forward", good, written, **rest):
        return
    wrong: list[tuple[dict[str, Any], Any, str]] = [
        ({"cscOffsets": OFFSETS[:-1].astype(np.int32)}, ExtentError, r"cscOffsets needs 5 elements .*nDstNodes \+ 1"),
        (
            {"cscIndices": SOURCES.astype(np.int64)},
            DTypeError,
            r"cscIndices needs a DevicePtr\[int32\], as idxType says",
        ),
        ({"nodeFeatures": nodes[1:]}, ExtentError, r"nodeFeatures needs 15 elements"),
        ({"nIndices": -1}, ArgumentError, "nIndices"),
    ]
    for changed, kind, words in wrong:
        with pytest.raises(kind, match=f"gnn_agg_simple_forward: {words}"):
            called(gpu, "gnn_agg_simple_forward", good | changed, written, **rest)
