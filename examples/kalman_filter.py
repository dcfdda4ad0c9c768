"""Kalman filter
=============

The level of the Nile from a hundred years of noisy discharges: a small system of equations a year, by ``lapack``.
"""

import argparse

import numpy as np

from offload_args import In, Scratch, blas, lapack, offload_args

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
parser.add_argument("--plot", metavar="FILE", help="draw the discharges and the level (needs matplotlib)")
options = parser.parse_args()

# %%
# The discharge at Aswan in 10^8 cubic metres, 1871 to 1970 (Cobb, Biometrika 65, 1978). The dam was begun in 1898.
# The state is the level and its slope. F advances it by a year, Q is the covariance of its random change, H selects the
# level, and R is the variance of a measurement.

NILE = """1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100 1210 1150
1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456 824 702 1120 1100 832 764 821 768
845 864 862 698 845 744 796 1040 759 781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890
744 749 838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740"""
measured, levels = np.array(NILE.split(), float), np.zeros((100, 2))
F, H, Q, R = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]]), np.diag([1400.0, 1.0]), np.array([[15000.0]])
x, P = np.array([1120.0, 0.0]), np.diag([1e5, 1e2])
scratch = [Scratch(shape, np.float64) for shape in ((2,), (2, 2), (2, 2), (1, 2), (1, 1), (1, 2), (1,))]
arrays = In(F), In(H), In(Q), In(R), In(measured), x.copy(), P.copy(), levels, *scratch
with offload_args(*arrays, device=options.device) as (dF, dH, dQ, dR, dz, dx, dP, dlevels, xp, Pp, T, HP, S, G, e):
    for year in range(100):
        blas.gemv(1.0, dF, dx, 0.0, xp)  # the predicted state, and its covariance
        blas.gemm(1.0, dF, dP, 0.0, T)
        Pp.copy_from(dQ)
        blas.gemm(1.0, T, dF, 1.0, Pp, trans_b="T")
        blas.gemm(1.0, dH, Pp, 0.0, HP)  # the covariance S of the measurement, and the transposed gain G = S^-1 H P
        S.copy_from(dR)
        blas.gemm(1.0, HP, dH, 1.0, S, trans_b="T")
        G.copy_from(HP)
        lapack.posv(S, G)
        e.copy_from(dz[year : year + 1])  # the measurement corrects the state and its covariance
        blas.gemv(-1.0, dH, xp, 1.0, e)
        blas.gemv(1.0, G.T, e, 1.0, xp)
        blas.gemm(-1.0, G, HP, 1.0, Pp, trans_a="T")
        dlevels[year].copy_from(xp)
        dx, dP, xp, Pp = xp, Pp, dx, dP
for z, level in zip(measured, levels, strict=True):  # the same filter by NumPy
    x, P = F @ x, F @ P @ F.T + Q
    K = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
    x, P = x + K @ (z - H @ x), P - K @ H @ P
    np.testing.assert_allclose(level, x, rtol=1e-8)
print(f"level {levels[:28, 0].mean():.0f} before the dam was begun, {levels[32:, 0].mean():.0f} after it was finished")
if options.plot:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    axes.plot(range(1871, 1971), measured, "k.", range(1871, 1971), levels[:, 0])
    axes.axvline(1898, color="grey", linestyle=":")
    axes.set_title("Discharge at Aswan, and the year when the dam was begun")
    figure.savefig(options.plot)
