"""The functions of cuDNN's graph API, used directly on a GPU: a product of matrices, and its CUDA graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offload_args import In, Out, Scratch, cudnn, offload_args
from offload_args.errors import DTypeError, ExtentError, LibraryError, StalePointerError

LIBRARY = "cudnn"

M, N, K = 24, 40, 16


def descriptor_of(kind: int, **attributes: tuple[int, Any]) -> Any:
    """Return a finalized descriptor; `attributes` are {name: (type, values)}."""
    descriptor = cudnn.backend_create_descriptor(kind)
    for name, (code, values) in attributes.items():
        put(descriptor, name, code, values)
    cudnn.backend_finalize(descriptor)
    return descriptor


def put(descriptor: Any, name: str, code: int, values: Any) -> None:
    cudnn.backend_set_attribute(descriptor, getattr(cudnn, f"ATTR_{name}"), code, values.size, values)


def objects(*arguments: Any) -> tuple[int, Any]:
    return cudnn.TYPE_BACKEND_DESCRIPTOR, np.array([array.address for array in arguments], np.uint64)


def numbers(*arguments: int) -> tuple[int, Any]:
    return cudnn.TYPE_INT64, np.array(arguments, np.int64)


def tensor(uid: int, *shape: int) -> Any:
    return descriptor_of(
        cudnn.BACKEND_TENSOR_DESCRIPTOR,
        TENSOR_UNIQUE_ID=numbers(uid),
        TENSOR_DATA_TYPE=(cudnn.TYPE_DATA_TYPE, np.array([cudnn.DATA_HALF], np.int32)),
        TENSOR_BYTE_ALIGNMENT=numbers(16),
        TENSOR_DIMENSIONS=numbers(*shape),
        TENSOR_STRIDES=numbers(shape[1] * shape[2], shape[2], 1),
    )


def product(handle: Any) -> tuple[Any, list[Any]]:
    """Return a plan of a product of matrices, and the descriptors in the plan."""
    of_handle = cudnn.TYPE_HANDLE, np.array([handle.address], np.uint64)
    a, b, c = tensor(1, 1, M, K), tensor(2, 1, K, N), tensor(3, 1, M, N)
    floats = cudnn.TYPE_DATA_TYPE, np.array([cudnn.DATA_FLOAT], np.int32)
    matmul = descriptor_of(cudnn.BACKEND_MATMUL_DESCRIPTOR, MATMUL_COMP_TYPE=floats)
    operation = descriptor_of(
        cudnn.BACKEND_OPERATION_MATMUL_DESCRIPTOR,
        OPERATION_MATMUL_ADESC=objects(a),
        OPERATION_MATMUL_BDESC=objects(b),
        OPERATION_MATMUL_CDESC=objects(c),
        OPERATION_MATMUL_DESC=objects(matmul),
    )
    graph = descriptor_of(
        cudnn.BACKEND_OPERATIONGRAPH_DESCRIPTOR,
        OPERATIONGRAPH_HANDLE=of_handle,
        OPERATIONGRAPH_OPS=objects(operation),
    )
    heuristics = descriptor_of(
        cudnn.BACKEND_ENGINEHEUR_DESCRIPTOR,
        ENGINEHEUR_OPERATION_GRAPH=objects(graph),
        ENGINEHEUR_MODE=(cudnn.TYPE_HEUR_MODE, np.array([cudnn.HEUR_MODE_A], np.int32)),
    )
    configurations = [cudnn.backend_create_descriptor(cudnn.BACKEND_ENGINECFG_DESCRIPTOR) for _ in range(8)]
    addresses = objects(*configurations)[1]
    place = cudnn.ATTR_ENGINEHEUR_RESULTS, cudnn.TYPE_BACKEND_DESCRIPTOR
    count = cudnn.backend_get_attribute(heuristics, *place, addresses.size, addresses)
    for configuration in configurations[:count]:
        try:
            plan = descriptor_of(
                cudnn.BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                EXECUTION_PLAN_HANDLE=of_handle,
                EXECUTION_PLAN_ENGINE_CONFIG=objects(configuration),
            )
        except LibraryError:
            continue
        return plan, [a, b, c, matmul, operation, graph, heuristics, configurations]
    raise AssertionError(f"none of {count} configurations")


def pack(room: Any, *pointers: Any) -> Any:
    addresses = np.array([pointer.address for pointer in pointers], np.uint64)
    return descriptor_of(
        cudnn.BACKEND_VARIANT_PACK_DESCRIPTOR,
        VARIANT_PACK_UNIQUE_IDS=numbers(1, 2, 3),
        VARIANT_PACK_DATA_POINTERS=(cudnn.TYPE_VOID_PTR, addresses),
        VARIANT_PACK_WORKSPACE=(cudnn.TYPE_VOID_PTR, np.array([room.address], np.uint64)),
    )


def test_a_plan_by_hand_multiplies_matrices_and_is_updated_as_a_cuda_graph(gpu: str) -> None:
    random = np.random.default_rng(1)
    a, b = ((random.integers(-8, 9, shape) / 8).astype(np.float16) for shape in ((M, K), (K, N)))
    c, twice = np.zeros((M, N), np.float16), np.zeros((M, N), np.float16)
    with cudnn.create(gpu) as handle:
        plan, parts = product(handle)
        size = np.zeros(1, np.int64)
        place = cudnn.ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, cudnn.TYPE_INT64
        assert cudnn.backend_get_attribute(plan, *place, 1, size) == 1
        room = Scratch((max(int(size[0]), 1),), np.uint8)
        with offload_args(In(a), In(b), Out(c), Out(twice), room, device=gpu) as (pa, pb, pc, pt, pr):
            cudnn.backend_execute(handle, plan, pack(pr, pa, pb, pc))
            cudnn.backend_execute(handle, plan, pack(pr, pa, pb, pt))
        for descriptor in (plan, *parts[:-1]):
            cudnn.backend_destroy_descriptor(descriptor)
            with pytest.raises(StalePointerError):
                _ = descriptor.address
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, expected, rtol=1e-2, atol=1e-2)
    np.testing.assert_array_equal(c, twice)


def test_attributes_of_wrong_types_sizes_and_states_are_refused(gpu: str) -> None:
    descriptor = cudnn.backend_create_descriptor(cudnn.BACKEND_TENSOR_DESCRIPTOR)
    with pytest.raises(DTypeError, match="arrayOfElements needs an array of int64, as attributeType"):
        put(descriptor, "TENSOR_DIMENSIONS", cudnn.TYPE_INT64, np.zeros(3, np.int32))
    with pytest.raises(ExtentError, match="arrayOfElements needs 4 elements"):
        kind = cudnn.ATTR_TENSOR_DIMENSIONS, cudnn.TYPE_INT64
        cudnn.backend_set_attribute(descriptor, *kind, 4, np.zeros(3, np.int64))
    with pytest.raises(LibraryError, match="BAD_PARAM"):
        cudnn.backend_finalize(descriptor)
    cudnn.backend_destroy_descriptor(descriptor)
    with pytest.raises(StalePointerError):
        cudnn.backend_finalize(descriptor)
