"""Attributes that objects of other packages have, and that public objects lack, are answered with the remedy (T69)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from helpers.arrays import ramp
from offload_args import (
    Communicator,
    Device,
    HostAttributeError,
    In,
    Module,
    Out,
    Scratch,
    accelerate,
    blas,
    kernels,
    offload_args,
    record,
    sparse,
    testing,
    trace,
)
from offload_args._instead import _FORMULAS as FORMULAS
from offload_args._instead import _ON_DEVICE as ON_DEVICE
from offload_args.errors import HostAccessError, RegionError

# {object: names that such an object has in CuPy, PyCUDA, numba, PyTorch, JAX, mpi4py or Python's profilers}.
NAMES = {
    "region": "device pointers arrays dtype shape nbytes address to_host get numpy exit release free sync wait enter "
    "start begin_capture counters memory abort open_",
    "pointer": "get set_async get_async ptr data_ptr gpudata device_ptr device_pointer handle copy_to_host cpu numpy "
    "copy_ fill_ zero_ clone numel element_size unsqueeze permute t H is_contiguous is_cuda grad mm mv add sub mul "
    "exp sqrt sum mean norm stream free synchronize valid float double detach item tolist astype view flat copy_form",
    "device": "id use free_memory mem_info total_memory attributes get_attribute sync make_context stream reset "
    "device_kind memory_stats platform multi_processor_count max_threads_per_block synchronise",
    "memory": "used available capacity",
    "kernel": "num_regs get_regs_per_thread shared_size_bytes max_threads_per_block attributes ptx code inspect_asm "
    "params forall prepare launch offload signatures_",
    "reduction": "signature args launch parameter",
    "graph": "launch run debug_dump upload capture_begin nodez",
    "capture": "replay nodes draw",
    "trace": "print_stats key_averages table export_chrome_trace dump_stats advice enable disable events_",
    "summary": "save to_json events timeline",
    "recording": "save close replay begin",
    "accelerated": "summary close",
    "report": "to_json to_dict",
    "communicator": "Get_rank get_rank world_size Allreduce allReduce Bcast gather Reduce_scatter Alltoall scatter "
    "isend irecv Split Dup Free abort synchronize",
    "In": "shape dtype nbytes",
    "Scratch": "size fill to_host strids",
    "module": "get_function get_global functions free",
    "lending": "shape nnz data to_host",
    "moved": "bytes_upp",
}


# {words of the remedy: the names of a pointer's attributes that have it}.
ANSWERS = {
    "use to_host(), a NumPy array of the present values": "get get_async copy_to_host cpu numpy",
    "to_host() makes a NumPy array": "clone",
    "to_host().": "item tolist",
    "use address": "ptr data_ptr gpudata device_ptr device_pointer handle",
    "use assign for values of the host": "set_async",
    "use copy_from for a pointer": "copy_",
    "use fill": "fill_ zero_",
    "use size": "numel",
    "use dtype.itemsize": "element_size",
    "use reshape": "unsqueeze",
    "use T;": "permute t",
    'use trans="C"': "H",
    "strides and ld": "is_contiguous",
    "use device.is_gpu": "is_cuda",
    "keeps no gradients": "grad detach",
    "use blas.gemm": "mm mv",
    "use blas.axpy": "add sub",
    "use blas.scal": "mul",
    "use blas.nrm2": "norm",
    "kernels.elementwise": "exp sqrt astype float double",
    "kernels.reduce": "sum mean",
    "use region.stream": "stream",
    "the region frees": "free",
    "leave the region": "synchronize",
    "use live": "valid",
    "lend x.view(dtype)": "view",
    "reshape(-1)": "flat",
}


@pytest.fixture
def objects(tmp_path: Path) -> dict[str, Any]:
    x, formula = ramp(4), kernels.elementwise("y = 2 * x", x=In[np.float32], y=Out[np.float32])
    with trace() as t, record(tmp_path / "recording.jsonl.gz") as recording, testing.counting("sim:0") as moved:
        region = offload_args(x, device="sim:0")
        with region as (dx,):
            with region.capture(x=dx) as graph:
                blas.scal(2.0, dx)
            capture = region.capture(x=dx)
    with accelerate("host") as accelerated:
        pass
    (communicator,) = Communicator.all(["host"])
    communicator.close()
    return {
        "region": region, "pointer": dx, "device": Device("host"), "memory": Device("host").memory, "kernel": formula,
        "reduction": kernels.reduce("sum", x=np.float32), "graph": graph, "capture": capture, "trace": t,
        "summary": t.summary, "recording": recording, "accelerated": accelerated, "report": accelerated.report,
        "communicator": communicator, "In": In(x), "Scratch": Scratch(3), "moved": moved,
        "module": Module.__new__(Module), "lending": sparse.lend(scipy.sparse.csr_array(np.eye(3))),
    }  # fmt: skip


def test_a_plausible_attribute_is_answered_with_the_remedy(objects: dict[str, Any]) -> None:
    wrong = []
    for kind, names in NAMES.items():
        for name in names.split():
            with pytest.raises(AttributeError) as raised:
                getattr(objects[kind], name)
            assert not hasattr(objects[kind], name)
            text = str(raised.value)
            words = "; use ", "; did you mean ", ": write "
            if isinstance(raised.value, HostAttributeError):
                words = (next(answer for answer, names in ANSWERS.items() if name in names.split()),)
                assert text.startswith(f"DevicePtr.{name}: device pointers don't have it; ")
            if not any(word in text for word in words):
                wrong.append(text)
    assert wrong == []


def test_methods_and_functions_in_remedies_of_pointers_exist() -> None:
    names = {*NAMES["pointer"].split(), *ON_DEVICE, *FORMULAS}
    with offload_args(ramp(4), device="sim:0") as (dx,):
        for name in sorted(names - {*dir(dx)}):
            with pytest.raises((AttributeError, HostAccessError)) as raised:
                getattr(dx, name)
            text = str(raised.value)
            for method in re.findall(r"to_host\(\)\.(\w+)", text):
                assert hasattr(np.ndarray, method), text
            for function in re.findall(r"(np(?:\.\w+)+)\(dx\.to_host\(\)", text):
                assert callable(eval(function)), text


def test_a_property_that_refuses_keeps_its_own_error() -> None:
    region = offload_args(ramp(3), device="host")
    with region, pytest.raises(HostAttributeError, match=r"the region is on host; only GPUs have streams"):
        _ = region.stream


def test_a_block_that_lends_a_matrix_says_where_the_matrix_is() -> None:
    A = scipy.sparse.csr_array(np.eye(3))
    block = sparse.lend(A, device="host")
    with pytest.raises(TypeError, match=r"got Lending; enter it: with sparse\.lend\(A\) as dA$"):
        sparse.matmul(block, np.ones(3))
    with pytest.raises(HostAccessError, match=r"the matrix stands after `as`"):
        block @ np.ones(3)
    with pytest.raises(
        TypeError,
        match=r"enter it first, with c, offload_args\(x\) as \(dx,\): where c is <with sparse\.lend\(A\) as dA>$",
    ):
        offload_args(block, device="host").open()
    with block as dA:
        assert dA.shape == (3, 3)
    unused = sparse.lend(A)
    with pytest.raises(RegionError, match=r"sparse\.lend: the block was not entered; write with sparse\.lend"):
        unused.__exit__(None, None, None)
    with pytest.raises(HostAccessError, match=r"sparse\.lend: a lent matrix stands on the left"):
        np.ones(A.shape[0]) @ unused
    with pytest.raises(RegionError, match=r"sparse\.lend: the block was entered before; call sparse\.lend\(A\) again"):
        block.__enter__()


def test_an_object_has_no_special_methods_of_its_class_s_class() -> None:
    for thing in (In(np.ones(2)), sparse.lend(scipy.sparse.eye_array(3, format="csr"))):
        for name in ("__getitem__", "__call__", "__len__", "__iter__", "__array__", "__dlpack__", "__or__"):
            assert not hasattr(thing, name), (thing, name)
