"""Call the C function with DevicePtrs.

`call` checks them against the function's types, and raises an error for a failure.
"""

from _power import ffi, lib

from offload_args import call


def iterate(A, x, y, steps):
    """Return the eigenvalue; A, x and y are DevicePtrs of one region."""
    eigenvalue = ffi.new("double *")
    call(lib.iterate, A, x, y, steps, eigenvalue)
    return eigenvalue[0]
