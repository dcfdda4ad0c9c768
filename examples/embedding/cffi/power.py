"""Call the C function with DevicePtrs: offload_args.call checks them against the function's types."""

from _power import ffi, lib

from offload_args import OffloadError, call


def iterate(n, A, x, y, steps):
    """Return the eigenvalue; A, x and y are DevicePtrs of one region."""
    eigenvalue = ffi.new("double *")
    if call(lib.iterate, n, A, x, y, steps, eigenvalue):
        raise OffloadError(ffi.string(lib.oa_last_error()).decode())
    return eigenvalue[0]
