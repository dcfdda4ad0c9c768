"""The functions of a library that its families bind, each joined with its declaration in the header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import descriptors, expressions, labels, shared
from .enums import Enums
from .helper_functions import DeviceNumber, Given, ServiceParameter, struct_fields
from .labelled import Labelled, ObjectKind, Scope, pointee
from .library import Function
from .older import Older, fault
from .parameters import (
    Array,
    DataType,
    Handle,
    HostList,
    Parameter,
    Scalar,
    Size,
    Workspace,
    WorkspaceSize,
    name_fault,
)

# Headers that generated code includes: of bodies and of callers that are written by hand.
BODIES = Path(__file__).parents[1] / "csrc" / "body" / "cublaslt.h"
CALLERS = BODIES.with_name("rotmg.h")
REAL = {"s": "s", "d": "d", "c": "s", "z": "d"}
MOST_PARAMETERS = 36  # OA_MOST_VALUES of csrc/body/body.h
MOST_HELD = 2  # OA_MOST_HELD of csrc/call/object.h


@dataclass(frozen=True)
class Binding:
    """One function that a family of the roles file binds, before the header is looked at."""

    family: str
    name: str
    letter: str
    form: str
    summary: str
    older: str  # the name that it had in older versions; "" if that is the same
    may_lack: bool  # the header need not have it


class Families:
    """Reads the [family] tables of a roles file."""

    def __init__(
        self,
        name: str,
        api: dict[str, Any],
        roles: dict[str, Any],
        enums: Enums,
        object_kinds: dict[str, ObjectKind],
        older: Older | None,
    ) -> None:
        self.name = name
        self.api = api
        self.roles = roles
        self.settings = roles.get("library", {})
        self.enums = enums
        self.object_kinds = object_kinds
        self.older = older
        self.integers = roles.get("integers", {})
        self.folded = {one.replace("_", "").casefold(): one for one in api["functions"]}  # of cudnnRNNForward_v8
        self.folded |= {one.casefold(): one for one in api["functions"]}  # of cublasHSHgemvBatched and its like
        self.faults: list[str] = []

    def functions(self) -> list[Function]:
        found: dict[str, Function] = {}
        for bound in self.named():
            where = f"{self.name}.toml: [family.{bound.family}] {bound.name}"
            symbol, candidates = self.symbol(bound.name)
            if symbol is None:
                if not bound.may_lack:
                    self.faults.append(f"{where}: the header has none of {', '.join(candidates)}")
            elif bound.name not in found:
                found[bound.name] = self.function(bound, symbol)
                self.in_older_version(bound, symbol, where)
            elif not bound.may_lack:
                self.faults.append(f"{where}: bound twice")
        return [found[name] for name in sorted(found)]

    def named(self) -> Iterator[Binding]:
        """Yield each function that is to be bound; a library's own families come first."""
        families = self.roles.get("family", {})
        listed = [
            (key, one, one in family.get("shared", ())) for key, family in families.items() for one in family["bind"]
        ]
        for key, template, is_shared in sorted(listed, key=lambda one: one[2]):
            bound = families[key]["bind"][template]
            older = families[key].get("older", {}).get(template, "")
            # Without letters: one function, whose types say all.
            letters, summary = ([""], bound) if isinstance(bound, str) else bound
            for letter in letters:
                forms = []
                for form, text in shared.FORMS.items() if "{form}" in template else [("", "")]:
                    words = {"t": letter, "r": REAL.get(letter, ""), "form": form}
                    name, before = template.format(**words), older.format(**words)
                    forms.append(Binding(key, name, letter, form, summary + text, before, is_shared))
                yield from [one for one in forms if self.symbol(one.name)[0]] or forms[:1]

    def symbol(self, name: str) -> tuple[str | None, list[str]]:
        """Return the vendor's symbol for a name, or None, and the symbols that were looked for."""
        camel = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
        candidates = [one.format(name=name, Name=camel) for one in self.settings.get("symbols", ["{name}"])]
        exact = next((one for one in candidates if one in self.api["functions"]), None)
        if exact:
            return exact, candidates
        folded = (one.casefold() for one in candidates)
        return next((self.folded[one] for one in folded if one in self.folded), None), candidates

    def in_older_version(self, bound: Binding, symbol: str, where: str) -> None:
        """Note under which name older versions of the library have a function, once it is known to be the same."""
        instead = (self.symbol(bound.older)[0] or bound.older) if bound.older else ""
        wrong = fault(self.api, symbol, instead)
        if wrong:
            self.faults.append(f"{where}: {wrong}")
        elif instead and self.older:
            self.older.instead[symbol] = instead

    def twins(self, functions: list[Function]) -> list[str]:
        """Return the symbols of bound functions that are not called, since the header has another one for the name."""
        twins = {symbol for one in functions for symbol in self.symbol(one.name)[1]} - {one.symbol for one in functions}
        return sorted(twins & self.api["functions"].keys())

    def left_over(self, functions: list[Function]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return the functions that are not bound, by the reason, and the functions that only <library>.raw has."""
        bound = {name for one in functions for name in (one.symbol, one.wide_symbol, one.query)}
        bound |= set(self.twins(functions))
        used = {str(one) for one in self.roles.get("handle", {}).values()}  # by the core
        used |= {self.roles.get("find", {}).get("version", {}).get("call", "")}
        left = [symbol for symbol in self.api["functions"] if symbol not in bound]
        found: list[dict[str, list[str]]] = []
        for table in ("not_bound", "only_raw"):
            rules = self.roles.get(table, [])
            groups: dict[str, list[str]] = {one["reason"]: [] for one in rules}
            for symbol in tuple(left):
                rule = next((one for one in rules if re.fullmatch(one["names"], symbol)), None)
                if rule:
                    groups[rule["reason"]].append(symbol)
                    left.remove(symbol)
            self.faults += [
                f"{self.name}.toml: [{table}] {reason!r}: no function is left for this reason"
                for reason, symbols in groups.items()
                if not symbols
            ]
            found.append(groups)
        self.faults += [
            f"{self.name}.toml: {symbol} is neither bound nor under [[not_bound]]"
            for symbol in left
            if symbol not in used
        ]
        return found[0], found[1]

    def function(self, bound: Binding, symbol: str) -> Function:
        name, key, form = bound.name, bound.family, bound.form
        family = self.roles["family"][key]
        on_device = family.get("pointer_mode") == "device"
        entry = self.api["functions"][symbol]
        by_name = {one.casefold(): (one, label) for one, label in family["parameters"].items()}
        everywhere = {one: ours for one, ours in self.roles.get("also", {}).items() if ours.casefold() in by_name}
        also = {one.casefold(): ours for one, ours in {**everywhere, **family.get("also", {})}.items()}
        also = {one: ours for one, ours in also.items() if one not in by_name}
        where = f"{self.name}.toml: [family.{key}] {symbol}"
        declared, structs = self.with_fields(entry["parameters"], by_name, where)
        order = [
            ours
            for given, _ in declared
            if (ours := by_name.get(also.get(given.casefold(), given).casefold(), ("", "nothing"))[0])
            and not by_name[ours.casefold()][1].startswith(("gives", "new", "returned", "nothing", "stream"))
        ]
        keys = {ours: label.removeprefix("object ").split(" ")[0] for ours, label in by_name.values()}
        scope = Scope(
            library=self.name,
            has_backend=self.settings.get("backend") is not None,
            stream=self.settings.get("stream"),
            workspace=self.query_end,
            functions=self.api["functions"],
            dtypes=self.roles.get("types", {}) | family.get("types", {}),
            kinds=self.object_kinds,
            enums=self.enums.for_letter(bound.letter),
            named=dict.fromkeys(self.api["enums"], "int") | self.roles.get("raw", {}),
            words=self.enums.words,
            letter=bound.letter,
            is_listed=shared.is_listed(form),
            on_device=on_device,
            order=order,
            objects={ours: self.object_kinds[key] for ours, key in keys.items() if key in self.object_kinds},
            faults=self.faults,
        )
        plain = self.with_complex(self.labelled(bound, symbol, declared, structs, by_name, also, scope, where))
        parameters, lacking = shared.in_form(form, plain, on_device)
        self.faults += [f"{where}: {one} has no stride, or no batch count" for one in lacking]
        self.check_names(parameters, where)
        requires = tuple(filter(None, (scope.parse(one, where) for one in family.get("requires", []))))
        names = expressions.Names(parameters, self.enums.constants)
        self.faults += [f"{where}: requires: {fault}" for one in requires for fault in names.requirement(one)]
        self.check_whole(symbol, parameters, where)
        device_only = on_device or sum(isinstance(one, Array) for one in parameters) > sum(
            isinstance(one, Array) for one in plain
        )
        query = symbol + self.query_end if any(isinstance(one, Workspace) for one in parameters) else ""
        # The form with 64-bit sizes writes 64-bit indices: to arrays of another dtype, so it is another function.
        has_sizes = any(isinstance(one, Size) and one.is_narrow for one in parameters)
        has_indices = any(one.dtype == "i32" and one.direction != "in" for one in parameters if isinstance(one, Array))
        return Function(
            name=name,
            symbol=symbol,
            wide_symbol=self.wide(symbol, where) if has_sizes and not has_indices else None,
            returns=self.integer(entry["returns"]),
            arguments=tuple(parameters),
            summary=bound.summary,
            family=key,
            form=form,
            optional=bool(family.get("optional", False)),
            device_only=device_only,
            query=query,
            asked=self.asked(query, parameters, where) if query else (),
            requires=requires,
            written=self.body(family, where),
            called_by=self.caller(family, name, where),
            asks=self.called(family, where),
            hides=str(family.get("hides", "")),
            notes=str(family.get("notes", "")),
            since=(family["since"]["version"], family["since"]["why"]) if "since" in family else None,
            declared=declared,
        )

    def labelled(
        self,
        bound: Binding,
        symbol: str,
        declared: tuple[tuple[str, str], ...],
        structs: dict[str, str],
        by_name: dict[str, tuple[str, str]],
        also: dict[str, str],
        scope: Scope,
        where: str,
    ) -> list[Parameter]:
        """Return the parameters of a function in the header's order, each with the role that its label says."""
        form = bound.form
        handle = self.roles.get("handle", {}).get("type")
        parameters: list[Parameter] = []
        returned = self.integer(self.api["functions"][symbol]["returns"])
        used: set[str] = set()
        for given, c_type in ((one, self.integer(c_type)) for one, c_type in declared):
            if handle and c_type == handle and given.casefold() not in by_name:
                parameters.append(Handle(name="handle", c_type=c_type))
                continue
            looked_up = also.get(given.casefold(), given).casefold()
            if looked_up not in by_name:
                looked_up = shared.plain_name(form, looked_up)
            if looked_up not in by_name:
                labelled = shared.label_in_form(form, given)
                ours = self.roles.get("also", {}).get(given, given)
                if labelled and (
                    made := labels.parameter(
                        Labelled(name=ours, c_type=c_type, label=labelled, where=f"{where}: {given}", scope=scope)
                    )
                ):
                    parameters.append(made)
                    continue
                self.faults.append(f"{where}: {given} ({c_type}) has no role")
                continue
            ours, label = by_name[looked_up]
            used.add(looked_up)
            made = labels.parameter(
                Labelled(name=ours, c_type=c_type, label=label, where=f"{where}: {given}", scope=scope)
            )
            if made:
                parameters.append(replace(made, field_of=structs.get(given, "")))
        if any(isinstance(one, Given) and one.object_kind and one.object_kind.is_handle for one in parameters):
            parameters.append(DeviceNumber(name="device", c_type="int"))
        for folded, (ours, label) in by_name.items():
            if label.split(" ")[0] == "returned":
                made = labels.parameter(
                    Labelled(name=ours, c_type=returned, label=label, where=f"{where}: return value", scope=scope)
                )
                if made:
                    parameters.append(made)
            elif folded not in used and label != "fields":
                self.faults.append(f"{where}: the role {ours} names no parameter")
        return parameters

    def with_complex(self, parameters: list[Parameter]) -> list[Parameter]:
        """Return the parameters with the array that says which numbers are complex, where their enum does not say."""
        typed = {one.name: one.enum.type for one in parameters if isinstance(one, DataType)}
        of_type = {one.name: self.enums.dtypes_of(typed[one.of]) for one in parameters if one.of in typed}
        array = next((one.name for one in parameters if isinstance(one, Array) and one.of and not one.is_read_only), "")
        return [
            replace(one, complex_as=array)
            if isinstance(one, Scalar) and one.name in of_type and not of_type[one.name] & {"c64", "c128"}
            else one
            for one in parameters
        ]

    def check_names(self, parameters: list[Parameter], where: str) -> None:
        """Note which parameters refer to others that are not there, or have names that can't be used."""
        types = {one.name for one in parameters if isinstance(one, DataType)}
        for one in parameters:
            if isinstance(one, HostList) and one.length not in {other.name for other in parameters}:
                self.faults.append(f"{where}: {one.name}: {one.length} is not a parameter")
            if one.of and one.of not in types:
                no_object = ", nor an object" * isinstance(one, Array)
                wrong = f"{one.of} is not an argument that stands for dtypes{no_object}"
                self.faults.append(f"{where}: {one.name}: {wrong}")
            wrong = name_fault(one.name) if one.in_record and not isinstance(one, ServiceParameter) else ""
            if wrong:
                self.faults.append(f"{where}: {one.name}: it {wrong}; name it otherwise under `also`")
        self.faults += [f"{where}: {fault}" for fault in expressions.faults(parameters, self.enums.constants)]

    def check_whole(self, symbol: str, parameters: list[Parameter], where: str) -> None:
        """Note the faults of a function's parameters as a whole, and of its return value."""
        if sum(isinstance(one, descriptors.HeldObject) for one in parameters) > MOST_HELD:
            self.faults.append(f"{where}: an object holds at most {MOST_HELD} others")
        rooms = [one for one in parameters if isinstance(one, (Workspace, WorkspaceSize))]
        for one in rooms:
            if isinstance(one, Workspace) and not one.on_host:
                continue  # some functions know how much they need
            if not any(one.on_host == other.on_host and type(other) is not type(one) for other in rooms):
                missed = "workspace of that size" if isinstance(one, WorkspaceSize) else "size of that workspace"
                self.faults.append(f"{where}: {one.name}: there is no {'host ' * one.on_host}{missed}")
        changed = descriptors.unnoticed_change(symbol, parameters)
        self.faults += [f"{where}: {changed}"] if changed else []
        passed = sum(one.in_record for one in parameters)
        if passed > MOST_PARAMETERS:
            self.faults.append(f"{where}: has {passed} parameters, and a routine at most {MOST_PARAMETERS}")
        status = self.settings.get("status")
        entry = self.api["functions"][symbol]
        if entry["returns"] not in (status, "void") and not any(one.role == "returned" for one in parameters):
            self.faults.append(f"{where}: the return value ({entry['returns']}) has no role")

    def with_fields(
        self, parameters: list[list[str]], by_name: dict[str, tuple[str, str]], where: str
    ) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
        """Return names and types of a header's parameters, with the fields in place of structs that are labelled so.

        And the struct of each field, by the field's name.
        """
        declared: list[tuple[str, str]] = []
        structs: dict[str, str] = {}
        for given, c_type in parameters:
            if by_name.get(given.casefold(), ("", ""))[1] != "fields":
                declared.append((given, c_type))
                continue
            to, const = pointee(c_type)
            fields = struct_fields(self.roles.get("raw", {}).get(to, ""))
            if not const or not fields or not self.settings.get("backend"):
                needs = "a const pointer to a struct that [raw] defines, of a library with a backend"
                self.faults.append(f"{where}: {given}: labelled fields, but its type is {c_type}: it needs {needs}")
            if wrong := name_fault(given):
                self.faults.append(f"{where}: {given}: it {wrong}")
            declared += fields
            structs |= dict.fromkeys((name for name, _ in fields), given)
        folded = [one.casefold() for one, _ in declared]
        twice = sorted({one for one in structs if folded.count(one.casefold()) > 1})
        self.faults += [f"{where}: {one}: another parameter, or field, has the name of this field" for one in twice]
        return tuple(declared), structs

    def asked(self, symbol: str, parameters: list[Parameter], where: str) -> tuple[tuple[Parameter, str], ...]:
        """Return the parameters of a query: the parameters of its function, and the outputs for sizes."""
        entry = self.api["functions"].get(symbol)
        if entry is None:
            self.faults.append(f"{where}: the header has no {symbol}, which would tell its workspace")
            return ()
        ours = {one.name.casefold(): one for one in parameters}
        also = {one.casefold(): name.casefold() for one, name in self.roles.get("also", {}).items()}
        found: list[tuple[Parameter, str]] = []
        for given, c_type in ((one, self.integer(c_type)) for one, c_type in entry["parameters"]):
            one = ours.get(given.casefold()) or ours.get(also.get(given.casefold(), ""))
            if c_type == self.roles.get("handle", {}).get("type"):
                one = ours["handle"]
            if one is None and c_type in ("int *", "size_t *"):
                one = WorkspaceSize(name=given, c_type=c_type)
            if one is None:
                self.faults.append(f"{where}: {symbol} has a parameter {given} that its function lacks")
            else:
                found.append((one, c_type))
        return tuple(found)

    @property
    def query_end(self) -> str:
        """Returns how the names of queries end; "" if the library has none."""
        return str(self.settings.get("workspace", ""))

    def called(self, family: dict[str, Any], where: str) -> tuple[str, ...]:
        """Return the functions of the header that a body written by hand calls."""
        asks = tuple(family.get("asks", "").split())
        self.faults += [f"{where}: the header has no {one}" for one in asks if one not in self.api["functions"]]
        return asks

    def body(self, family: dict[str, Any], where: str) -> str:
        """Return the C function that a family says is its body, once csrc/body/ is known to have it; "" if none."""
        written = str(family.get("written", ""))
        if written and not re.search(rf"\bint {re.escape(written)}\(const oa_routine \*", BODIES.read_text()):
            self.faults.append(f"{where}: written: csrc/body/{BODIES.name} has no {written}")
        return written

    def caller(self, family: dict[str, Any], name: str, where: str) -> str:
        """Return the C function that a family says calls the library's; "" if none."""
        caller = str(family.get("called_by", "")).replace("{name}", name)
        if caller and not re.search(rf"\bint {re.escape(caller)}\(void \*symbol", CALLERS.read_text()):
            self.faults.append(f"{where}: called_by: csrc/body/{CALLERS.name} has no {caller}")
        if caller and self.settings.get("backend"):
            self.faults.append(f"{where}: called_by: that is for libraries that run on the CPU")
        return caller

    def wide(self, symbol: str, where: str) -> str | None:
        """Return the name of the form with 64-bit sizes, once it is known to be the same function."""
        suffix = self.settings.get("wide")
        wide = self.api["functions"].get(f"{symbol}{suffix}") if suffix else None
        if wide is None:
            return None
        narrow, wider = (
            [(given, self.integer(c_type)) for given, c_type in one["parameters"]]
            for one in (self.api["functions"][symbol], wide)
        )
        same = len(narrow) == len(wider) and all(
            a == b or (a[0] == b[0] and b[1] == re.sub(r"\bint\b", "int64_t", a[1]))
            for a, b in zip(narrow, wider, strict=True)
        )
        if not same:
            self.faults.append(f"{where}: {symbol}{suffix} differs in more than its sizes")
        return f"{symbol}{suffix}"

    def integer(self, c_type: str) -> str:
        """Return a type with C's own name of an integer for the header's."""
        if not self.integers:
            return c_type
        return re.sub(r"\w+", lambda found: str(self.integers.get(found[0], found[0])), c_type)
