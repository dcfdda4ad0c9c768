"""Joins an api file and a roles file into a Library: its settings, its handle, and its functions."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import Any

from . import schema
from .enums import Enums
from .families import Families
from .labelled import ObjectKind
from .library import Library, RolesError
from .older import Older
from .parameters import Stream

# The keys of [find] with their defaults, for finding a library and for querying its version.
FIND: dict[str, Any] = {
    "install": "install it",
    "pathfinder": "",
    "rocm": "",
    "shared_with": {},
    "wheels": {},
    "folders": [],
}
VERSION_GIVES = ("text", "parts", "number", "buffer")
# The ways in which a library gets the stream: through its handle, as an argument, or not at all.
STREAMS = ("handle", "argument", "none")
# The ways in which a library's functions take scalars and results: on the host or the device, depending on the handle's
# pointer mode; only through pointers to the host; or by value.
SCALARS = ("pointer mode", "host", "by value")
# {function of [handle]: (whether it takes a pointer to the handle's type, the number of further parameters)}.
HANDLE_FUNCTIONS = {
    "create": (True, 0),
    "destroy": (False, 0),
    **dict.fromkeys(("set_stream", "get_stream", "set_pointer_mode", "get_pointer_mode"), (False, 1)),
    "set_workspace": (False, 2),
}
MOST_TOLD = 2  # OA_MOST_TOLD of csrc/include/offload_args/shim.h
HANDLE_MODES = ("host_mode", "device_mode")


class Joined:
    """A library. This class reads all tables of its roles file except the families."""

    def __init__(self, name: str, api: dict[str, Any], roles: dict[str, Any]) -> None:
        self.name = name
        self.api = api
        self.roles = roles
        self.settings = roles.get("library", {})
        older = api.get("older")
        before = roles.get("older", {}).get("before", "")
        self.older = Older(older["version"], before, only=tuple(older["only"])) if older else None
        self.enums = Enums(name, api, roles)
        self.all_constants = self.enums.all_constants
        self.faults = schema.disagreements(name, api, roles)
        self.object_kinds = self.read_object_kinds()
        self.faults += self.enums.faults
        self.families = Families(name, api, roles, self.enums, self.object_kinds, self.older)
        self.families.faults = self.faults

    def read_object_kinds(self) -> dict[str, ObjectKind]:
        """Return the [object] tables."""
        object_kinds: dict[str, ObjectKind] = {}
        handle = self.roles.get("handle", {}).get("type")
        for key, table in self.roles.get("object", {}).items():
            place = f"{self.name}.toml: [object.{key}]"
            destroy = table["destroy"]
            if destroy not in self.api["functions"]:
                self.faults.append(f"{place} destroy: the header has no {destroy}")
            elif table["type"] not in (c_type for _, c_type in self.api["functions"][destroy]["parameters"]):
                self.faults.append(f"{place} destroy: {destroy} takes no {table['type']}")
            if table["class"] in schema.OF_STUBS:
                self.faults.append(f"{place} class: {table['class']!r} is a name that the stubs need")
            elif not table["class"].isidentifier() or keyword.iskeyword(table["class"]):
                self.faults.append(f"{place} class: {table['class']!r} is not a name of Python's")
            describes = table.get("describes", {})
            asked = (describes.get("call", ""), describes.get("gives", ""), describes.get("bytes", ""))
            for called in filter(None, (asked[0], asked[2])):
                if called not in self.api["functions"]:
                    self.faults.append(f"{place} describes: the header has no {called}")
            label, _, stem = table.get("attributes", "").partition(" of ")
            if label and (label not in self.enums.tables or not stem):
                self.faults.append(f"{place} attributes: {label!r} is none of [enums], or no function is named")
            is_handle = table["type"] == handle
            tells = tuple(table.get("tells", {}).items())
            self.faults += [f"{place} tells: {fault}" for _, symbol in tells if (fault := self.untold(table, symbol))]
            if len(tells) > MOST_TOLD:
                self.faults.append(f"{place} tells: an object tells at most {MOST_TOLD} numbers")
            kind = ObjectKind(
                key,
                table["type"],
                table["class"],
                destroy,
                is_handle,
                asked,
                (label, stem),
                placed=bool(table.get("placed", False)),
                tells=tells,
            )
            object_kinds[key] = kind
        return object_kinds

    def untold(self, table: dict[str, Any], symbol: str) -> str:
        """Return the reason why a function can't report a number of an object, or ""."""
        types = [c_type for _, c_type in self.api["functions"].get(symbol, {"parameters": []})["parameters"]]
        needed = f"a {table['type']} and an int *"
        return "" if types == [table["type"], "int *"] else f"{symbol} takes {', '.join(types)}, and needs {needed}"

    def find(self) -> dict[str, Any]:
        """Return the table of how Python finds the library, with a value for every key."""
        find = dict(self.roles.get("find", {}))
        version = find.pop("version", {"call": "", "gives": ""})
        if version["gives"] not in ("", *VERSION_GIVES):
            known = ", ".join(VERSION_GIVES)
            self.faults.append(f"{self.name}.toml: [find] version: gives is one of {known}, not {version['gives']!r}")
        return FIND | find | {"version": (version["call"], version["gives"])}

    def setting(self, table: str, key: str, allowed: Iterable[str], default: str | None = None) -> str:
        """Return a setting whose value has to be one of a few words."""
        value = self.roles[table].get(key, default)
        if value not in allowed:
            self.faults.append(f"{self.name}.toml: [{table}] {key}: {value!r} is none of {', '.join(allowed)}")
        return str(value)

    def handle(self) -> dict[str, Any] | None:
        """Return the [handle] table, with the values of its modes."""
        if "handle" not in self.roles:
            return None
        handle = dict(self.roles["handle"])
        for key, value in handle.items():
            if key in HANDLE_MODES:
                handle[key] = self.all_constants.get(value, 0)
            there = self.all_constants if key in HANDLE_MODES else self.api["functions"]
            if key in (*HANDLE_MODES, *HANDLE_FUNCTIONS) and value not in there:
                self.faults.append(f"{self.name}.toml: [handle] {key}: the header has no {value}")
            elif key in HANDLE_FUNCTIONS:
                self.faults += self.wrong_handle_function(key, value)
            elif key not in ("type", "workspace_bytes", "shared", "handles_of", *HANDLE_MODES):
                self.faults.append(f"{self.name}.toml: [handle] {key}: there is no such setting")
        if "type" not in handle:
            self.faults.append(f"{self.name}.toml: [handle] has no type")
        if ("set_workspace" in handle) != ("workspace_bytes" in handle):
            self.faults.append(f"{self.name}.toml: [handle] set_workspace and workspace_bytes need each other")
        if "create" not in handle and not any(object_kind.is_handle for object_kind in self.object_kinds.values()):
            self.faults.append(f"{self.name}.toml: [handle] has no create, and no [object] has its type")
        return handle

    def wrong_handle_function(self, key: str, symbol: str) -> list[str]:
        """Return the faults of the types of a function of [handle], which the core calls with fixed types."""
        makes, more = HANDLE_FUNCTIONS[key]
        first = f"{self.roles['handle'].get('type', '')}{' *' * makes}"
        types = [c_type for _, c_type in self.api["functions"][symbol]["parameters"]]
        others = [type_ for type_ in types[1:] if type_.endswith("*") or not key.startswith("get_")]
        if types[:1] == [first] and len(types) - 1 == len(others) == more:
            return []
        also = ("", " and a pointer" if key.startswith("get_") else " and one more", ", a pointer and a size")[more]
        needed = f"{first}{also}"
        return [f"{self.name}.toml: [handle] {key}: {symbol} takes {', '.join(types)}, and needs to take {needed}"]

    def policies(self, handle: dict[str, Any] | None) -> tuple[str, str]:
        """Check the library's stream mode and scalar mode against the handle's functions, and return both modes."""
        has = handle or {}
        modes = "pointer mode" if "set_pointer_mode" in has else "host"
        stream = self.setting("library", "stream", STREAMS, "handle" if "set_stream" in has else "none")
        scalars = self.setting("library", "scalars", SCALARS, modes if self.settings.get("backend") else "by value")
        place = f"{self.name}.toml: [library]"
        if stream == "handle" and "set_stream" not in has:
            self.faults.append(f'{place} stream = "handle": [handle] has no set_stream')
        if scalars == "pointer mode" and not {"set_pointer_mode", *HANDLE_MODES} <= has.keys():
            self.faults.append(f'{place} scalars = "pointer mode": [handle] has no set_pointer_mode, or not its modes')
        if not self.settings.get("backend") and (stream, handle) != ("none", None):
            self.faults.append(f"{place}: a library without a backend runs on the CPU, and has no stream and no handle")
        return stream, scalars

    def library(self) -> Library:
        settings = self.settings
        functions = self.families.functions()
        handle = self.handle()
        stream, scalars = self.policies(handle)
        if stream == "argument" and not any(
            function.written or isinstance(argument, Stream)
            for function in functions
            for argument in function.arguments
        ):
            self.faults.append(f'{self.name}.toml: [library] stream = "argument": no function has a parameter "stream"')
        probe = settings.get("probe")
        if probe is not None and probe not in self.api["functions"]:
            self.faults.append(f"{self.name}.toml: [library] probe: the header has no {probe}")
        status = settings.get("status")
        codes = sorted((value, key) for key, value in self.api["enums"].get(status, {}).items()) if status else []
        last_error = settings.get("last_error")
        if last_error is not None and last_error not in self.api["functions"]:
            self.faults.append(f"{self.name}.toml: [library] last_error: the header has no {last_error}")
        success = settings.get("success")
        if success is not None and success not in self.all_constants:
            self.faults.append(f"{self.name}.toml: [library] success: the header has no {success}")
        others = {key: settings.get(key, []) for key in ("also_done", "only_asked")}
        for key, name in ((key, name) for key, names in others.items() for name in names):
            if name not in self.all_constants:
                self.faults.append(f"{self.name}.toml: [library] {key}: the header has no {name}")
        row_major = settings.get("row_major")
        if row_major and row_major["value"] not in self.all_constants:
            self.faults.append(f"{self.name}.toml: [library] row_major: the header has no {row_major['value']}")
        not_bound, only_raw = self.families.left_over(functions)
        find = self.find()
        if settings.get("name", self.name) != self.name:
            self.faults.append(f"{self.name}.toml: [library] name: {settings['name']!r} is not the name of the file")
        if self.faults:
            raise RolesError(self.faults)
        return Library(
            name=self.name,
            title=settings["title"],
            source=settings.get("source", f"{settings['title']} manual"),
            backend=settings.get("backend"),
            sonames=settings.get("sonames", []),
            stream=stream,
            last_error=last_error,
            uncaptured=settings.get("uncaptured"),
            scalars=scalars,
            fetches_results=settings.get("fetches_results", False),
            success=self.all_constants[success] if success else 0,
            also_done=[self.all_constants[other] for other in others["also_done"]],
            only_asked=[self.all_constants[other] for other in others["only_asked"]],
            prefixes=settings.get("prefixes", [""]),
            suffixes=settings.get("suffixes", [""]),
            probe=probe,
            header=self.api["header"],
            version=self.api["version"],
            status_codes=codes,
            handle=handle,
            row_major=(row_major["parameter"], self.all_constants[row_major["value"]]) if row_major else None,
            constants=dict(sorted(self.enums.constants.items(), key=lambda item: item[0])),
            names_here=self.enums.names_here,
            functions=functions,
            find=find,
            api=self.api,
            older=self.older,
            status=status or "",
            integers=self.families.integers,
            raw=self.roles.get("raw", {}),
            object_kinds=list(self.object_kinds.values()),
            dtype_enums=[self.enums.enum(key) for key, table in self.enums.tables.items() if "dtypes" in table],
            adds=settings.get("adds", {}),
            not_bound=not_bound,
            only_raw=only_raw,
            twins=self.families.twins(functions),
            api_count=len(self.api["functions"]),
        )
