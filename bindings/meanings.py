"""The meaning of each word of schema.py, for words.md: a word that lacks one stops the generator."""

from __future__ import annotations

from .labelled import Label

MEANINGS = {
    "extends": "shared files, such as `blas`, whose families the library takes over where its header has them",
    "integers": "C's own names for the header's integers: `rocblas_int = \"int\"`",
    "also": 'the names that families use for parameters of the header, where these differ: `{ A = "AP" '
    "}` by header's name",
    "handle": "The library's handle, which belongs to a device and has a stream. More of its keys are below.",
    "raw": "C definitions of types that the header only names, for `<library>.raw`: "
    '`cublasHandle_t = "struct cublasContext *"`; `"opaque"`: pointers to it are all that a caller has',
    "types": 'dtypes by C type: `float = "f32"`; `letter`: that of the function\'s letter',
    "words": 'the library\'s constants for words of shared families: `UPPER = "CUBLAS_FILL_MODE_UPPER"`',
    "library": "The library and its conventions.",
    "library.name": "the name of the file, and of the Python module",
    "library.title": "its name in texts",
    "library.source": "the manual that docstrings name; else `<title> manual`",
    "library.backend": "`cuda`, `hip` or `sim`; without it the library runs on the CPU",
    "library.wide": "the end of names of forms with 64-bit sizes, such as `_64`",
    "library.strip": "prefixes that constants lose in Python, with spaces between",
    "library.status": "the C type of the status that functions return",
    "library.success": "the constant for success; else 0",
    "library.also_done": "constants of other statuses of calls that did their work",
    "library.only_asked": "constants of other statuses of calls that wrote nothing",
    "library.stream": "the way of the stream to the library: `handle`, by its `set_stream`; `argument`, "
    "a parameter labelled "
    "`stream`; `none`",
    "library.scalars": "where functions take numbers: `pointer mode`, on the host or device as the "
    "handle says; `host`, by "
    "addresses of the host; `by value`",
    "library.probe": "a function whose presence shows that a file is this library",
    "library.workspace": "the end of the names of queries of workspace, such as `_bufferSize`; they have "
    "parameters of their "
    "function, and pointers to sizes",
    "library.uncaptured": "why a captured graph can't have its calls: `reason; remedy`",
    "library.last_error": "the function that tells more of the last failure: `const char *f(void *)`, of NULL",
    "library.sonames": "names of its file, the best first",
    "library.symbols": "how its symbols are spelled, with `{name}` or `{Name}`",
    "library.prefixes": "what builds put before symbols",
    "library.suffixes": "what builds put after symbols",
    "library.results_since": "the first version that fetches results for the host in the order of the stream",
    "library.adds": "names of its Python module by the file of `offload_args/` that has them",
    "library.row_major": "The parameter that says the order of matrices.",
    "library.row_major.parameter": "its name in the header",
    "library.row_major.value": "the constant for rows",
    "find": "How Python finds the library, and the remedy if it is missing.",
    "find.install": "the remedy in messages, such as `install nvidia-curand`",
    "find.pathfinder": "its name for cuda-pathfinder",
    "find.rocm": "its name for AMD's own finders",
    "find.shared_with": 'loaded modules that are linked with it: `{ NumPy = ["module", ...] }`',
    "find.wheels": 'wheels that carry it: `{ name-on-the-index = "module/lib/libx*.so" }`',
    "find.folders": 'folders of its vendor, as patterns: `["$X_HOME/lib", "/opt/x-*/lib"]`',
    "find.version": "The function that tells its version.",
    "find.version.call": "its symbol",
    "find.version.gives": "`text`, `parts` (by a property), `number` or `buffer`",
    "header": "What `extract` reads.",
    "header.version": "macros whose values, joined by dots, are the version",
    "header.functions": "a pattern of the functions to take, from the start of the name",
    "header.constants": "a pattern of the constants to take; an enum is taken whole",
    "header.prefix": "the text that this build puts before names; it is taken off",
    "header.language": "`c++` for a header that declares more there",
    "header.defines": "macros to set before the header is read",
    "older": "An older version of the header; the loaded version decides between the two.",
    "older.api": "the older api file: `rocblas-2` for `api/rocblas-2.json`",
    "older.before": "the first version that has all of the newer header",
    "newer": "What later versions of the library add, whose families say `since`, and lack.",
    "newer.api": "the api file of what they add: `rocblas-5` for `api/rocblas-5.json`",
    "newer.lacks": "the header's functions that they lack",
    "object.<name>": "A kind of object that the library makes and the caller owns.",
    "object.<name>.type": "its C type; the type of `[handle]` makes it the handle, and each call needs one",
    "object.<name>.class": "its name in Python",
    "object.<name>.destroy": "the function that destroys it",
    "object.<name>.attributes": "attributes of its class: `<enum> of <beginning of the functions' names>`",
    "object.<name>.placed": "it belongs to the device that is current when it is made",
    "object.<name>.tells": "numbers of it that never change, for extents, each with the function that tells it once: "
    '`{ ranks = "ncclCommCount" }` is `comm.ranks` of a parameter `comm`',
    "object.<name>.describes": "The memory that such an object describes.",
    "object.<name>.describes.call": "the function that says what one describes",
    "object.<name>.describes.gives": "the function's parameters after the object: a number that it "
    "takes; `dtype`, `rank`, "
    "`shape`, `strides`; `shape[0]`; `layout[1]`: for that layout there are only as many as `lengths` "
    "sum up to; `unused`; "
    "`none`: NULL",
    "object.<name>.describes.bytes": "the function that says how many bytes",
    "enums.<name>": "The constants that a parameter with this label may take.",
    "enums.<name>.type": "the C type",
    "enums.<name>.constants": "constants of the header, or a pattern of them",
    "enums.<name>.dtypes": 'instead: the dtypes that constants stand for, `{ CUDA_R_32F = "f32" }`; others are refused',
    "enums.<name>.complex": "the constants for complex types, if others",
    "enums.<name>.from_array": "with `dtypes`: Python's None stands for the dtype of the array that it determines",
    "enums.<name>.flags": "constants that may be added to them",
    "enums.<name>.values": "instead: constants of a header that is not read, with values",
    "family.<name>": "Functions that differ in types only.",
    "family.<name>.bind": 'names, each with a sentence, or with letters and a sentence: `"{t}gemv" = '
    '["sdcz", "Multiplies ..."]`',
    "family.<name>.parameters": "a label for each parameter, by its name",
    "family.<name>.also": "as `[also]`, for this family",
    "family.<name>.types": "as `[types]`, for this family",
    "family.<name>.pointer_mode": "`device`: all pointers are to the device",
    "family.<name>.written": "the C function of `csrc/` that is the body, by hand; its parameters have "
    "labels all the same",
    "family.<name>.called_by": "of a library of the CPU: the C function of `csrc/body/rotmg.h`, by hand, that calls "
    "the library's, or does its work where that would never return; `{name}` is the routine's",
    "family.<name>.asks": "the functions of the library that such a body calls, in order",
    "family.<name>.hides": "of a helper function: an object that meanwhile has addresses in place of handles",
    "family.<name>.noted_by": "of a helper function: the C function of `csrc/body/fft.h`, by hand, that works out the "
    "layouts that its object, a plan, notes for later calls",
    "family.<name>.notes": "of a helper function: an enum for a dtype, and at most 4 sizes, that the first "
    "object notes for later calls: "
    '`"precision sizes"`',
    "family.<name>.captured": "the core's own graphs can have its calls, whatever `library.uncaptured` says of "
    "a program's",
    "family.<name>.group": "of a helper function without parameters: it `begins` a group, whose calls the library "
    "issues at the group's end, or `ends` one",
    "family.<name>.outside_groups": "of a helper function: it is refused in a group",
    "family.<name>.aborts": "of a function with `ended`: also while another thread is in a call with the object",
    "family.<name>.optional": "a library without these functions is whole",
    "family.<name>.requires": 'comparisons of sizes that have to hold: `["m >= n"]`',
    "family.<name>.older": 'names in the older version: `"{t}trmm" = "{t}trmm_outofplace"`',
    "family.<name>.since": "Functions that are wrong, or other ones, in older versions of the library.",
    "family.<name>.since.version": "the first version that is called",
    "family.<name>.since.why": "the reason, for the message",
    "handle.workspace_bytes": "how much memory `region.capture()` gives a handle by `set_workspace`",
    "[not_bound]": "Functions that are not bound, and why. Each function of the header is bound, or in such a list.",
    "[not_bound].names": "a pattern of their whole names in the header: `cublasXt\\w+`",
    "[not_bound].reason": "why",
    "[only_raw]": "Functions that only `<library>.raw` has, which checks nothing but the number of arguments.",
    "[only_raw].names": "a pattern of their whole names in the header",
    "[only_raw].reason": "why",
}
HANDLE = {
    "type": "its C type; a parameter of this type without a label is the handle",
    "create": "the function that makes one; without it, since that takes settings, each call needs one of `[object]`",
    "destroy": "the function that destroys one",
    "set_stream": "the function that sets its stream",
    "get_stream": "the function that gets it",
    "set_pointer_mode": "the function that says where numbers are",
    "get_pointer_mode": "the function that tells it",
    "set_workspace": "the function that gives it device memory for what its calls use inside",
    "host_mode": "the constant for numbers on the host",
    "device_mode": "the constant for numbers on the device",
}
ENUM = Label(r"\w+", "<name of [enums]>", "a constant of the vendor's; with `dtypes`, one that stands for a dtype")
EXTENTS_MEAN = {
    "vector": ("vector(n, inc)", "n elements, inc apart"),
    "elements": ("elements(n)", "n elements"),
    "matrix": ("matrix(rows, columns, ld)", "all of a matrix"),
    "triangle": (
        "triangle(upper, n, ld[, unit])",
        "one triangle of a square matrix; `upper` and `unit` are tests, such as "
        "`uplo == UPPER`; a unit diagonal is not touched",
    ),
    "band": ("band(rows, columns, below, above, ld)", "the diagonals of a band matrix, one a row"),
    "band_triangle": ("band_triangle(upper, n, k, ld[, unit])", "one triangle of a square band matrix"),
    "packed": ("packed(upper, n[, unit])", "one triangle without gaps"),
    "described": ("described(xDesc)", "the elements that a descriptor describes, of its dtype"),
    "bytes": ("bytes(n)", "n bytes of any dtype"),
    "strided": ("strided(matrix(...), stride, count)", "count of any of these, the starts stride apart"),
    "pointers": ("pointers(matrix(...), count)", "count of any of these, each behind a pointer of an array"),
    "grouped": (
        "grouped(matrix(...), groups, size)",
        "an array of pointers to groups of these, each group with its own values of the names that are lists",
    ),
}
TYPED = {
    "of Btype": "after an extent: the argument `Btype`, an enum with dtypes, says the dtype of the `void *`",
    "of params": "likewise; an object that describes nothing: the dtype that a function with `notes` has noted at it. "
    "A call with an object that notes none is refused. `params[0]` in an extent is a size that it notes",
}
