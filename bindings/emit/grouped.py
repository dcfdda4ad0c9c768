"""Writes the bodies of routines whose arguments are lists with a value for each group of matrices.

Such a body has an inner function, in which each list is replaced by a local variable, the value for one group. So
extents and tests are written as in any other body. The body calls csrc/body/groups.h.
"""

from __future__ import annotations

import ast

from ..parameters import Array, HostList, Parameter, PointerArray
from .bodies import Body
from .c_text import to_c


class GroupedBody(Body):
    """Writes the body of one function of groups."""

    @property
    def group_count(self) -> str:
        return self.function.arrays[0].extent.groups

    def text(self, name: str) -> str:
        """Return the body, called `name`, and the inner function in front of it."""
        self.lines = []
        if self.numbers or self.function.result:
            raise ValueError("a function of groups has no numbers but lists")
        if self.is_late and self.has_status:
            raise ValueError("a function of groups of the CPU has no status")
        self.add(f"static int {name}_in(const oa_routine *routine, oa_value *values, oa_groups *groups) {{")
        self.add("  const int device = 0; /* its numbers are on the host */")
        self.locals()
        self.checks()
        self.add("  oa_operand *operands = groups->operands;")
        self.add(f"  for (int64_t g = 0; g < {self.group_count}; g++) {{")
        self.group()
        self.add("  }")
        self.symbol()
        self.add(f"  if (!{self.group_count}) return OA_OK;")
        self.begin()
        if self.is_late:
            self.add("  return oa_groups_submit(groups, routine, symbol, values, &call);")
        else:
            self.call()
        self.lines += ["}", ""]
        count, arrays = self.group_count, len(self.function.arrays)
        self.add(f"int {name}(const oa_routine *routine, oa_value *values, int device) {{")
        self.add("  (void)device;")
        self.add("  oa_groups groups;")
        at = self.at[count]
        self.add(
            f'  int status = oa_groups_start(&groups, routine, values, values[{at}].integer, "{count}", {arrays});'
        )
        self.add("  if (status) return status;")
        self.add(f"  status = {name}_in(routine, values, &groups);")
        self.add("  oa_groups_free(&groups);")
        self.add("  return status;")
        self.lines.append("}")
        return "\n".join(self.lines)

    def group(self) -> None:
        """Write the statements for group g: its values, their checks, and its operands."""
        integers = [list_ for list_ in self.function.lists if list_.label != "scalar"]
        for integer in integers:
            const = "" if integer.label == "ld" else "const "
            self.add(f"    {const}int64_t {integer.name} = groups->at[{self.at[integer.name]}][g];")
        for integer in integers:
            named = f'oa_groups_name(groups, "{integer.name}", g)'
            if integer.enum:
                test = " && ".join(f"{integer.name} != {value}" for _, value in integer.enum.values)
                failure = f'oa_fail_enum(routine->function, {named}, {integer.name}, "{integer.enum.names_and_values}")'
                self.add(f"    if ({test}) return {failure};")
            elif integer.label == "size":
                self.add(f"    if ({integer.name} < 0) return oa_fail_negative(routine, {named}, {integer.name});")
        before = len(self.lines)
        self.leading_dimensions()
        self.lines[before:] = [f"  {line}" for line in self.lines[before:]]
        for integer in integers:
            if integer.label == "ld":
                self.add(f"    groups->at[{self.at[integer.name]}][g] = {integer.name};")
        for position, array in enumerate(self.function.arrays):
            extent = self.extent(array.extent, array.repeats)
            operand = self.operand(array, self.access(array), extent)
            self.add(f"    operands[{position} * {self.group_count} + g] = {operand};")

    def overwrites(self, test: ast.expr) -> str:
        """Write the test whether an operand of group g is overwritten."""
        scalars = {list_.name for list_ in self.function.lists if list_.label == "scalar"}
        match test:
            case ast.Compare(left=ast.Name(id=scalar), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if (
                scalar in scalars
            ):
                at = self.at[scalar]
                return f"oa_groups_is_zero(&values[{at}], {self.dtypes}[{at}], g)"
        return to_c(test, self.library.constants)

    def wide_test(self) -> str:
        """Write the test whether a size does not fit 32 bits."""
        return " | ".join(["groups->wide", *(f"oa_is_wide({size.name})" for size in self.sizes)])

    def begin(self) -> None:
        self.start(f"(int)({len(self.function.arrays)} * {self.group_count})")
        self.add("  const int failed = oa_begin_lists(&call);")
        self.add("  if (failed || !call.open) return failed;")

    def array_of(self, array: Array) -> str:
        """Write the address of an array of pointers to the matrices of all groups."""
        position = self.function.arrays.index(array)
        return f"operands[{position} * {self.group_count}].address"

    def list_of(self, host_list: HostList, wide: str) -> str:
        """Write the address of a list in the vendor's form. `wide` is the test for integers of 64 bits."""
        at = self.at[host_list.name]
        if host_list.label == "scalar":
            return f"((const oa_number_list *)values[{at}].pointer)->at"
        itemsize = "sizeof(int)"
        if host_list.label != "enum":
            itemsize = f"{wide} ? sizeof(int64_t) : sizeof(int)" if host_list.is_narrow else "sizeof(int64_t)"
        return f"oa_groups_integers(groups, {at}, {itemsize})"

    def call(self) -> None:
        wide = "wide" if self.wide_symbol else "0"
        for list_ in self.function.lists:
            self.add(f"  const void *{list_.name} = {self.list_of(list_, wide)};")
        self.vendor_calls()

    def passed(self, parameter: Parameter, wide: bool) -> tuple[str, str]:
        match parameter:
            case HostList():
                return "const void *", parameter.name
            case PointerArray():
                return "const void *", self.array_of(parameter)
        return super().passed(parameter, wide)
