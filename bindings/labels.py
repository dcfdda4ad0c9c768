"""The classes of parameters that labels stand for, in the order in which they are tried."""

from __future__ import annotations

import re
from functools import cache

from . import descriptors, helper_functions, parameters
from .labelled import Labelled
from .parameters import Parameter

CLASSES: tuple[type[Parameter], ...] = (
    parameters.Size,
    descriptors.Room,
    parameters.PointerArray,
    parameters.Array,
    parameters.HostList,
    parameters.Scalar,
    parameters.Update,
    parameters.Output,
    parameters.Result,
    parameters.Stream,
    parameters.Workspace,
    parameters.WorkspaceSize,
    helper_functions.Object,
    helper_functions.Ended,
    helper_functions.ByValue,
    descriptors.OptionalObject,
    descriptors.HeldObject,
    helper_functions.Integer,
    helper_functions.Kept,
    helper_functions.SetStream,
    descriptors.Factor,
    descriptors.Real,
    descriptors.Integers,
    descriptors.Elements,
    descriptors.Bytes,
    helper_functions.HostArray,
    descriptors.Address,
    descriptors.GivenReal,
    descriptors.GivenList,
    descriptors.GivenPlace,
    helper_functions.GivenBytes,
    helper_functions.Given,
    descriptors.Nothing,
)


@cache
def _fit(text: str) -> tuple[type[Parameter], re.Match[str]] | None:
    """Return the first class that has a label for this text, and the match of the label's pattern."""
    for kind in CLASSES:
        for label in vars(kind).get("labels", ()):
            if match := re.fullmatch(label.pattern, text, re.DOTALL):
                return kind, match
    return None


def parameter(labelled: Labelled) -> Parameter | None:
    """Return the parameter for which a label stands. If it stands for none, note a fault and return None."""
    try:
        if labelled.label in labelled.scope.enums:
            return parameters.EnumValue.from_enum(labelled, labelled.scope.enums[labelled.label])
        if fit := _fit(labelled.label):
            kind, match = fit
            return kind.from_label(labelled, match)
    except SyntaxError:
        labelled.fault(f"{labelled.label!r} is not an expression")
        return None
    labelled.fault(f"{labelled.label!r} is not a role")
    return None
