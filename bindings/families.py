"""The functions that a library's families bind; each is joined with its declaration in the header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import descriptors, expressions, labels, shared
from .enums import Enums
from .helper_functions import DeviceNumber, Given, HelperParameter, Object, struct_fields
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

# Headers of hand-written bodies and of hand-written callers, which generated code includes.
BODIES = tuple(Path(__file__).parents[1] / "csrc" / "body" / name for name in ("cublaslt.h", "fft.h"))
CALLERS = BODIES[0].with_name("rotmg.h")
REAL = {"s": "s", "d": "d", "c": "s", "z": "d"}
MOST_PARAMETERS = 36  # OA_MOST_VALUES of csrc/body/body.h
MOST_HELD = 2  # OA_MOST_HELD of csrc/call/object.h


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(path.name for path in paths)


def _declared(function: str, first: str) -> bool:
    """Return whether a header of bodies declares a function whose first parameter points to the type `first`."""
    pattern = rf"\bint {re.escape(function)}\({first} \*"
    return any(re.search(pattern, path.read_text()) for path in BODIES)


@dataclass(frozen=True)
class Binding:
    """One function of a family in the roles file, before it is looked up in the header."""

    family: str
    name: str
    letter: str
    form: str
    summary: str
    older: str  # its name in older versions; "" if the name was the same
    may_lack: bool  # whether the header may lack the function


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
        self.folded = {
            symbol.replace("_", "").casefold(): symbol for symbol in api["functions"]
        }  # for names such as cudnnRNNForward_v8
        self.folded |= {
            symbol.casefold(): symbol for symbol in api["functions"]
        }  # for names such as cublasHSHgemvBatched
        self.faults: list[str] = []

    def functions(self) -> list[Function]:
        functions: dict[str, Function] = {}
        for bound in self.named():
            place = f"{self.name}.toml: [family.{bound.family}] {bound.name}"
            symbol, candidates = self.symbol(bound.name)
            if symbol is None:
                if not bound.may_lack:
                    self.faults.append(f"{place}: the header has none of {', '.join(candidates)}")
            elif bound.name not in functions:
                functions[bound.name] = self.function(bound, symbol)
                self.in_older_version(bound, symbol, place)
            elif not bound.may_lack:
                self.faults.append(f"{place}: bound twice")
        return [functions[name] for name in sorted(functions)]

    def named(self) -> Iterator[Binding]:
        """Yield each function that is to be bound; the functions of a library's own families are first."""
        families = self.roles.get("family", {})
        listed = [
            (key, template, template in family.get("shared", ()))
            for key, family in families.items()
            for template in family["bind"]
        ]
        for key, template, is_shared in sorted(listed, key=lambda entry: entry[2]):
            bound = families[key]["bind"][template]
            older = families[key].get("older", {}).get(template, "")
            # A template without letters is one function, whose types are complete.
            letters, summary = ([""], bound) if isinstance(bound, str) else bound
            for letter in letters:
                forms = []
                for form, text in shared.FORMS.items() if "{form}" in template else [("", "")]:
                    words = {"t": letter, "r": REAL.get(letter, ""), "form": form}
                    name, before = template.format(**words), older.format(**words)
                    forms.append(Binding(key, name, letter, form, summary + text, before, is_shared))
                yield from [form for form in forms if self.symbol(form.name)[0]] or forms[:1]

    def symbol(self, name: str) -> tuple[str | None, list[str]]:
        """Return the vendor's symbol for a name, or None, and the symbols that were searched for."""
        camel = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
        candidates = [symbol.format(name=name, Name=camel) for symbol in self.settings.get("symbols", ["{name}"])]
        exact = next((candidate for candidate in candidates if candidate in self.api["functions"]), None)
        if exact:
            return exact, candidates
        folded = (candidate.casefold() for candidate in candidates)
        return next((self.folded[name] for name in folded if name in self.folded), None), candidates

    def in_older_version(self, bound: Binding, symbol: str, place: str) -> None:
        """Check that a function of older versions of the library is the same function, and note its name."""
        instead = (self.symbol(bound.older)[0] or bound.older) if bound.older else ""
        wrong = fault(self.api, symbol, instead)
        if wrong:
            self.faults.append(f"{place}: {wrong}")
        elif instead and self.older:
            self.older.instead[symbol] = instead

    def twins(self, functions: list[Function]) -> list[str]:
        """Return the other symbols that the header has for names of bound functions; they are not called."""
        twins = {symbol for function in functions for symbol in self.symbol(function.name)[1]} - {
            function.symbol for function in functions
        }
        return sorted(twins & self.api["functions"].keys())

    def left_over(self, functions: list[Function]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return {reason: functions that are not bound}, and {reason: functions that only <library>.raw has}."""
        bound = {name for function in functions for name in (function.symbol, function.wide_symbol, function.query)}
        bound |= set(self.twins(functions))
        used = {str(symbol) for symbol in self.roles.get("handle", {}).values()}  # symbols that the core calls
        used |= {self.roles.get("find", {}).get("version", {}).get("call", "")}
        left = [symbol for symbol in self.api["functions"] if symbol not in bound]
        sections: list[dict[str, list[str]]] = []
        for table in ("not_bound", "only_raw"):
            rules = self.roles.get(table, [])
            groups: dict[str, list[str]] = {rule["reason"]: [] for rule in rules}
            for symbol in tuple(left):
                rule = next((rule for rule in rules if re.fullmatch(rule["names"], symbol)), None)
                if rule:
                    groups[rule["reason"]].append(symbol)
                    left.remove(symbol)
            self.faults += [
                f"{self.name}.toml: [{table}] {reason!r}: no function is left for this reason"
                for reason, symbols in groups.items()
                if not symbols
            ]
            sections.append(groups)
        self.faults += [
            f"{self.name}.toml: {symbol} is neither bound nor under [[not_bound]]"
            for symbol in left
            if symbol not in used
        ]
        return sections[0], sections[1]

    def function(self, bound: Binding, symbol: str) -> Function:
        name, key, form = bound.name, bound.family, bound.form
        family = self.roles["family"][key]
        on_device = family.get("pointer_mode") == "device"
        entry = self.api["functions"][symbol]
        by_name = {name.casefold(): (name, label) for name, label in family["parameters"].items()}
        everywhere = {name: ours for name, ours in self.roles.get("also", {}).items() if ours.casefold() in by_name}
        also = {name.casefold(): ours for name, ours in {**everywhere, **family.get("also", {})}.items()}
        also = {name: ours for name, ours in also.items() if name not in by_name}
        place = f"{self.name}.toml: [family.{key}] {symbol}"
        declared, structs = self.with_fields(entry["parameters"], by_name, place)
        order = [
            ours
            for name, _ in declared
            if (ours := by_name.get(also.get(name.casefold(), name).casefold(), ("", "nothing"))[0])
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
        plain = self.with_complex(self.labelled(bound, symbol, declared, structs, by_name, also, scope, place))
        parameters, lacking = shared.in_form(form, plain, on_device)
        self.faults += [f"{place}: {name} has no stride, or no batch count" for name in lacking]
        self.check_names(parameters, place)
        requires = tuple(filter(None, (scope.parse(requirement, place) for requirement in family.get("requires", []))))
        names = expressions.Names(parameters, self.enums.constants)
        self.faults += [f"{place}: requires: {fault}" for require in requires for fault in names.requirement(require)]
        self.check_whole(symbol, parameters, place)
        device_only = on_device or sum(isinstance(parameter, Array) for parameter in parameters) > sum(
            isinstance(parameter, Array) for parameter in plain
        )
        query = symbol + self.query_end if any(isinstance(parameter, Workspace) for parameter in parameters) else ""
        # The form with 64-bit sizes writes 64-bit indices to arrays of another dtype, so it is another function.
        has_sizes = any(isinstance(parameter, Size) and parameter.is_narrow for parameter in parameters)
        has_indices = any(
            parameter.dtype == "i32" and parameter.direction != "in"
            for parameter in parameters
            if isinstance(parameter, Array)
        )
        return Function(
            name=name,
            symbol=symbol,
            wide_symbol=self.wide(symbol, place) if has_sizes and not has_indices else None,
            returns=self.integer(entry["returns"]),
            arguments=tuple(parameters),
            summary=bound.summary,
            family=key,
            form=form,
            optional=bool(family.get("optional", False)),
            device_only=device_only,
            query=query,
            asked=self.asked(query, parameters, place) if query else (),
            requires=requires,
            written=self.body(family, place),
            called_by=self.caller(family, name, place),
            asks=self.called(family, place),
            captured=bool(family.get("captured", False)),
            hides=str(family.get("hides", "")),
            notes=str(family.get("notes", "")),
            group=self.group(family, parameters, place),
            outside_groups=bool(family.get("outside_groups", False)),
            outside_graphs=bool(family.get("outside_graphs", False)),
            aborts=bool(family.get("aborts", False)),
            noted_by=self.noted_by(family, place),
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
        place: str,
    ) -> list[Parameter]:
        """Return the parameters of a function in the header's order, each with its label's role."""
        form = bound.form
        handle = self.roles.get("handle", {}).get("type")
        parameters: list[Parameter] = []
        returned = self.integer(self.api["functions"][symbol]["returns"])
        used: set[str] = set()
        for name, c_type in ((declaration_name, self.integer(c_type)) for declaration_name, c_type in declared):
            if handle and c_type == handle and name.casefold() not in by_name:
                parameters.append(Handle(name="handle", c_type=c_type))
                continue
            looked_up = also.get(name.casefold(), name).casefold()
            if looked_up not in by_name:
                looked_up = shared.plain_name(form, looked_up)
            if looked_up not in by_name:
                labelled = shared.label_in_form(form, name)
                ours = self.roles.get("also", {}).get(name, name)
                if labelled and (
                    parameter := labels.parameter(
                        Labelled(name=ours, c_type=c_type, label=labelled, place=f"{place}: {name}", scope=scope)
                    )
                ):
                    parameters.append(parameter)
                    continue
                self.faults.append(f"{place}: {name} ({c_type}) has no role")
                continue
            ours, label = by_name[looked_up]
            used.add(looked_up)
            parameter = labels.parameter(
                Labelled(name=ours, c_type=c_type, label=label, place=f"{place}: {name}", scope=scope)
            )
            if parameter:
                parameters.append(replace(parameter, field_of=structs.get(name, "")))
        if any(
            isinstance(parameter, Given)
            and parameter.object_kind
            and (parameter.object_kind.is_handle or parameter.object_kind.placed)
            for parameter in parameters
        ) and not any(isinstance(parameter, Object) and parameter.object_kind.placed for parameter in parameters):
            parameters.append(DeviceNumber(name="device", c_type="int"))
        for folded, (ours, label) in by_name.items():
            if label.split(" ")[0] == "returned":
                parameter = labels.parameter(
                    Labelled(name=ours, c_type=returned, label=label, place=f"{place}: return value", scope=scope)
                )
                if parameter:
                    parameters.append(parameter)
            elif folded not in used and label != "fields":
                self.faults.append(f"{place}: the role {ours} names no parameter")
        return parameters

    def with_complex(self, parameters: list[Parameter]) -> list[Parameter]:
        """Return the parameters, in which an array makes numbers complex if the enum of their dtype does not."""
        typed = {parameter.name: parameter.enum.type for parameter in parameters if isinstance(parameter, DataType)}
        of_type = {
            parameter.name: self.enums.dtypes_of(typed[parameter.of])
            for parameter in parameters
            if parameter.of in typed
        }
        array = next(
            (
                parameter.name
                for parameter in parameters
                if isinstance(parameter, Array) and parameter.of and not parameter.is_read_only
            ),
            "",
        )
        return [
            replace(parameter, complex_as=array)
            if isinstance(parameter, Scalar)
            and parameter.name in of_type
            and not of_type[parameter.name] & {"c64", "c128"}
            else parameter
            for parameter in parameters
        ]

    def check_names(self, parameters: list[Parameter], place: str) -> None:
        """Note a fault for each parameter that refers to a missing parameter, or has a name that can't be used."""
        types = {parameter.name for parameter in parameters if isinstance(parameter, DataType)}
        for parameter in parameters:
            if isinstance(parameter, HostList) and parameter.length not in {other.name for other in parameters}:
                self.faults.append(f"{place}: {parameter.name}: {parameter.length} is not a parameter")
            if parameter.of and parameter.of not in types:
                no_object = ", nor an object" * isinstance(parameter, Array)
                wrong = f"{parameter.of} is not an argument that stands for dtypes{no_object}"
                self.faults.append(f"{place}: {parameter.name}: {wrong}")
            wrong = (
                name_fault(parameter.name) if parameter.in_record and not isinstance(parameter, HelperParameter) else ""
            )
            if wrong:
                self.faults.append(f"{place}: {parameter.name}: it {wrong}; name it otherwise under `also`")
        self.faults += [f"{place}: {fault}" for fault in expressions.faults(parameters, self.enums.constants)]

    def check_whole(self, symbol: str, parameters: list[Parameter], place: str) -> None:
        """Note the faults of a function's parameters as a whole, and of its return value."""
        if sum(isinstance(parameter, descriptors.HeldObject) for parameter in parameters) > MOST_HELD:
            self.faults.append(f"{place}: an object holds at most {MOST_HELD} others")
        rooms = [parameter for parameter in parameters if isinstance(parameter, (Workspace, WorkspaceSize))]
        for room in rooms:
            if isinstance(room, Workspace) and not room.on_host:
                continue  # some functions report the size that they need, and it may be narrow
            if not any(room.on_host == other.on_host and type(other) is not type(room) for other in rooms):
                missed = "workspace of that size" if isinstance(room, WorkspaceSize) else "size of that workspace"
                self.faults.append(f"{place}: {room.name}: there is no {'host ' * room.on_host}{missed}")
        changed = descriptors.unnoticed_change(symbol, parameters)
        self.faults += [f"{place}: {changed}"] if changed else []
        passed = sum(parameter.in_record for parameter in parameters)
        if passed > MOST_PARAMETERS:
            self.faults.append(f"{place}: has {passed} parameters, and a routine at most {MOST_PARAMETERS}")
        status = self.settings.get("status")
        entry = self.api["functions"][symbol]
        if entry["returns"] not in (status, "void") and not any(
            parameter.role == "returned" for parameter in parameters
        ):
            self.faults.append(f"{place}: the return value ({entry['returns']}) has no role")

    def with_fields(
        self, parameters: list[list[str]], by_name: dict[str, tuple[str, str]], place: str
    ) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
        """Return names and types of a header's parameters.

        If labels require it, the fields of a struct replace the struct.

        Also return the struct of each field, by the field's name.
        """
        declared: list[tuple[str, str]] = []
        structs: dict[str, str] = {}
        for header_name, c_type in parameters:
            if by_name.get(header_name.casefold(), ("", ""))[1] != "fields":
                declared.append((header_name, c_type))
                continue
            to, const = pointee(c_type)
            fields = struct_fields(self.roles.get("raw", {}).get(to, ""))
            if not const or not fields or not self.settings.get("backend"):
                needs = "a const pointer to a struct that [raw] defines, of a library with a backend"
                self.faults.append(
                    f"{place}: {header_name}: labelled fields, but its type is {c_type}: it needs {needs}"
                )
            if wrong := name_fault(header_name):
                self.faults.append(f"{place}: {header_name}: it {wrong}")
            declared += fields
            structs |= dict.fromkeys((name for name, _ in fields), header_name)
        folded = [name.casefold() for name, _ in declared]
        twice = sorted({field for field in structs if folded.count(field.casefold()) > 1})
        self.faults += [f"{place}: {name}: another parameter, or field, has the name of this field" for name in twice]
        return tuple(declared), structs

    def asked(self, symbol: str, parameters: list[Parameter], place: str) -> tuple[tuple[Parameter, str], ...]:
        """Return the parameters of a query: the parameters of its function, and the outputs for sizes."""
        entry = self.api["functions"].get(symbol)
        if entry is None:
            self.faults.append(f"{place}: the header has no {symbol}, which would tell its workspace")
            return ()
        ours = {parameter.name.casefold(): parameter for parameter in parameters}
        also = {name.casefold(): own.casefold() for name, own in self.roles.get("also", {}).items()}
        passed: list[tuple[Parameter, str]] = []
        for header_name, c_type in ((header_name, self.integer(c_type)) for header_name, c_type in entry["parameters"]):
            parameter = ours.get(header_name.casefold()) or ours.get(also.get(header_name.casefold(), ""))
            if c_type == self.roles.get("handle", {}).get("type"):
                parameter = ours["handle"]
            if parameter is None and c_type in ("int *", "size_t *"):
                parameter = WorkspaceSize(name=header_name, c_type=c_type)
            if parameter is None:
                self.faults.append(f"{place}: {symbol} has a parameter {header_name} that its function lacks")
            else:
                passed.append((parameter, c_type))
        return tuple(passed)

    @property
    def query_end(self) -> str:
        """Return the end of the names of queries; "" if the library has no queries."""
        return str(self.settings.get("workspace", ""))

    def called(self, family: dict[str, Any], place: str) -> tuple[str, ...]:
        """Return the functions of the header that a hand-written body calls."""
        symbols = tuple(
            ask if ask in self.api["functions"] else self.symbol(ask)[0] or ask
            for ask in family.get("asks", "").split()
        )
        self.faults += [f"{place}: the header has no {ask}" for ask in symbols if ask not in self.api["functions"]]
        return symbols

    def body(self, family: dict[str, Any], place: str) -> str:
        """Return the C function that a family names as its body, after a check that csrc/body/ has it, or ""."""
        written = str(family.get("written", ""))
        if written and not _declared(written, "const oa_routine"):
            self.faults.append(f"{place}: written: none of {_names(BODIES)} in csrc/body has {written}")
        return written

    def group(self, family: dict[str, Any], parameters: list[Parameter], place: str) -> str:
        """Return "begins" or "ends" if a function begins or ends a group of calls, otherwise ""."""
        group = str(family.get("group", ""))
        if group not in ("", "begins", "ends"):
            self.faults.append(f"{place} group: {group!r} is neither begins nor ends")
        elif group and parameters:
            self.faults.append(f"{place} group: {parameters[0].name}: it needs to have no parameters")
        return group

    def noted_by(self, family: dict[str, Any], place: str) -> str:
        """Return the C function that computes the notes of an object; "" if there is none."""
        noted_by = str(family.get("noted_by", ""))
        if noted_by and not _declared(noted_by, "oa_helper_call"):
            self.faults.append(f"{place}: noted_by: none of {_names(BODIES)} in csrc/body has {noted_by}")
        return noted_by

    def caller(self, family: dict[str, Any], name: str, place: str) -> str:
        """Return the C function that calls the library's functions of a family; "" if there is none."""
        caller = str(family.get("called_by", "")).replace("{name}", name)
        if caller and not re.search(rf"\bint {re.escape(caller)}\(void \*symbol", CALLERS.read_text()):
            self.faults.append(f"{place}: called_by: csrc/body/{CALLERS.name} has no {caller}")
        if caller and self.settings.get("backend"):
            self.faults.append(f"{place}: called_by: that is for libraries that run on the CPU")
        return caller

    def wide(self, symbol: str, place: str) -> str | None:
        """Return the name of the form with 64-bit sizes, after a check that only its integers differ."""
        suffix = self.settings.get("wide")
        wide = self.api["functions"].get(f"{symbol}{suffix}") if suffix else None
        if wide is None:
            return None
        narrow, wider = (
            [(name, self.integer(c_type)) for name, c_type in function["parameters"]]
            for function in (self.api["functions"][symbol], wide)
        )
        same = len(narrow) == len(wider) and all(
            a == b or (a[0] == b[0] and b[1] == re.sub(r"\bint\b", "int64_t", a[1]))
            for a, b in zip(narrow, wider, strict=True)
        )
        if not same:
            self.faults.append(f"{place}: {symbol}{suffix} differs in more than its sizes")
        return f"{symbol}{suffix}"

    def integer(self, c_type: str) -> str:
        """Return a C type in which the header's names of integers are replaced by C's own names."""
        if not self.integers:
            return c_type
        return re.sub(r"\w+", lambda word: str(self.integers.get(word[0], word[0])), c_type)
