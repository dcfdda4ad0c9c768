"""The documented rules of regions as plain NumPy: results and errors of each step, and the host arrays after it.

This is a model of docs/, csrc/DESIGN.md and the docstrings. It has no streams, handles or copies. A `World` holds the
contents of every host array, and the groups that are present on each device. Its methods are the steps that a program
can take. A method returns an `Outcome`. Or it raises `Refused`, with the exceptions of which one must be raised, and
changes nothing. Or, if the documents promise nothing, it raises `Unspecified` before it changes anything; a test must
not take such a step.

parts.py has the parts of arrays, present.py the present table, calls.py the calls, outcomes.py the outcomes. The other
files have the steps, by subject.

Elements are numbered in the order of the memory of their base array. A set of them is an int with a bit for each.
"""

from helpers.model.calls import (
    BLAS,
    CONTENTS,
    HELD,
    LARGEST,
    LEVEL_1,
    OVERWRITES,
    READS,
    READS_AND_WRITES,
    REAL,
    SCAL,
    TO_HOST,
    Array,
    Call,
    Chain,
    Compute,
    Operand,
    Rules,
)
from helpers.model.entering import Entering
from helpers.model.leaving import End, Leaving
from helpers.model.outcomes import Each, Outcome, Refused, Unspecified
from helpers.model.parts import Part, contains, number, overlap, triangle, view, whole
from helpers.model.present import Argument, Direction, Group, Lent, Mapping, Pointer, Region
from helpers.model.replaying import Replaying, access_of_fill
from helpers.model.updating import Updating, Within

__all__ = [
    "BLAS",
    "CONTENTS",
    "HELD",
    "LARGEST",
    "LEVEL_1",
    "OVERWRITES",
    "READS",
    "READS_AND_WRITES",
    "REAL",
    "SCAL",
    "TO_HOST",
    "Argument",
    "Array",
    "Call",
    "Chain",
    "Compute",
    "Direction",
    "Each",
    "End",
    "Group",
    "Lent",
    "Mapping",
    "Operand",
    "Outcome",
    "Part",
    "Pointer",
    "Refused",
    "Region",
    "Rules",
    "Unspecified",
    "Within",
    "World",
    "access_of_fill",
    "contains",
    "number",
    "overlap",
    "triangle",
    "view",
    "whole",
]


class World(Entering, Replaying, Updating, Leaving):
    """Host arrays, and the groups of them that are present on each device."""
