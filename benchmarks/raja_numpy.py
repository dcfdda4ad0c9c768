"""The kernels of raja_kernels.py in NumPy, on arrays with the names that raja.py uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

RHO0, E_CUT, E_MIN, Q_CUT = 1.5, 0.03, -2.0, 0.2
P_CUT, P_MIN, EOSVMAX = 0.05, -0.3, 0.9
Arrays = Mapping[str, Any]


def energy(a: Arrays) -> tuple[Any, Any]:
    """Return e_new and q_new after the six launches."""

    def viscosity(e: Any, v: Any, p: Any) -> Any:
        squared = (a["pbvc"] * e + v * v * a["bvc"] * p) / RHO0
        root = np.where(squared <= 0.1111111e-36, 0.3333333e-18, np.sqrt(np.abs(squared)))
        return root * a["ql_old"] + a["qq_old"]

    def cut(e: Any) -> Any:
        return np.maximum(np.where(abs(e) < E_CUT, 0, e), E_MIN)

    delvc, old = a["delvc"], a["p_old"] + a["q_old"]
    e = a["e_old"] - 0.5 * delvc * old + 0.5 * a["work"]
    q = np.where(delvc > 0, 0, viscosity(e, 1 / (1 + a["comp_half"]), a["p_half"]))
    e = e + 0.5 * delvc * (3 * old - 4 * (a["p_half"] + q))
    e = cut(e + 0.5 * a["work"])
    q_tilde = np.where(delvc > 0, 0, viscosity(e, a["vnewc"], a["p_new"]))
    e = cut(e - (7 * old - 8 * (a["p_half"] + q) + (a["p_new"] + q_tilde)) * delvc / 6)
    last = viscosity(e, a["vnewc"], a["p_new"])
    return e, np.where(delvc > 0, q, np.where(abs(last) < Q_CUT, 0, last))


def pressure(a: Arrays) -> tuple[Any, Any]:
    """Return bvc and p_new."""
    bvc = 2 / 3 * (a["delvc"] + 1)
    p = bvc * a["e_old"]
    p = np.where((abs(p) < P_CUT) | (a["vnewc"] >= EOSVMAX), 0, p)
    return bvc, np.maximum(p, P_MIN)


def _named(names: str, function: Callable[[Arrays], tuple[Any, ...]]) -> Callable[[Arrays], dict[str, Any]]:
    return lambda arrays: dict(zip(names.split(), function(arrays), strict=True))


# {kernel of the suite: a function that returns its results}, if all elements of the written arrays were 1 before.
LOOPS: dict[str, Callable[[Arrays], dict[str, Any]]] = {
    "Basic_DAXPY": _named("e_new", lambda a: (1 + 1e-6 * a["e_old"],)),
    "Basic_MULADDSUB": _named(
        "e_new q_new third",
        lambda a: (a["e_old"] * a["work"], a["e_old"] + a["work"], a["e_old"] - a["work"]),
    ),
    "Stream_COPY": _named("e_new", lambda a: (a["e_old"],)),
    "Stream_MUL": _named("e_new", lambda a: (0.3 * a["e_old"],)),
    "Stream_ADD": _named("e_new", lambda a: (a["e_old"] + a["work"],)),
    "Stream_TRIAD": _named("e_new", lambda a: (a["e_old"] + 0.3 * a["work"],)),
    "Apps_PRESSURE": _named("q_new e_new", pressure),
    "Apps_ENERGY": _named("e_new q_new", energy),
}
REDUCTIONS: dict[str, Callable[[Arrays], dict[str, Any]]] = {
    "Basic_REDUCE3_INT": _named("integer_part", lambda a: ([f(a["integers"]) for f in (np.sum, np.min, np.max)],)),
    "Stream_DOT": _named("part", lambda a: (a["e_old"] @ a["work"],)),
}
