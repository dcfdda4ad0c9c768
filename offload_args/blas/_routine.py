"""The vendors' functions of each routine, found by device and dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..dtypes import DTYPE_NAMES
from ._vendors import Enums, vendor_of

if TYPE_CHECKING:
    import numpy as np

    from ..pointers import DevicePtr

    Pointer: TypeAlias = DevicePtr[Any]
    Scalar: TypeAlias = complex | np.number[Any] | DevicePtr[Any]

__all__ = ["DTYPES", "ITEMSIZES", "Routine", "is_complex"]

# The dtypes of BLAS, by oa_dtype.
DTYPES: Final = {DTYPE_NAMES.index(name): name for name in ("float32", "float64", "complex64", "complex128")}
ITEMSIZES: Final = dict(zip(DTYPES, (4, 8, 8, 16), strict=True))


def is_complex(code: int) -> bool:
    return DTYPES.get(code, "").startswith("complex")


# The parts of a call: (itemsize, the vendor's function in column-major order, enums).
Entry: TypeAlias = tuple[int, Any, Enums]


class Routine(dict[tuple[int, int], Entry]):
    """The vendors' functions of one routine, by device number and dtype; filled at first use."""

    def __init__(self, name: str, functions: str, *, ordered: bool = True) -> None:
        super().__init__()
        self.name = name
        # of float32, float64, complex64, complex128; "-" where there is none
        self.functions = dict(zip(DTYPES, functions.split(), strict=True))
        self.ordered = ordered  # the function has matrices: some libraries take their order first

    def __missing__(self, key: tuple[int, int]) -> Entry:
        device, code = key
        if self.functions.get(code, "-") == "-":
            raise KeyError(code)  # explain says which dtypes there are
        vendor = vendor_of(device)
        call = vendor.function(self.name, self.functions[code], ordered=self.ordered)
        entry = self[key] = ITEMSIZES[code], call, vendor.enums(conjugates=is_complex(code))
        return entry
