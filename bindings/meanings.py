"""The meaning of each word of schema.py, for words.md. A word without a meaning stops the generator."""

from __future__ import annotations

from .labelled import Label

MEANINGS = {
    "extends": "shared files, such as `blas`: the library has each family of such a file whose functions are "
    "in its header",
    "integers": "C's own names for the header's integers: `rocblas_int = \"int\"`",
    "also": 'the names that families use for parameters with other names in the header: `{ A = "AP" }`, by the '
    "header's name",
    "handle": "The library's handle, which belongs to a device and has a stream.",
    "raw": 'C definitions of types that the header only names, for `<library>.raw`: `cublasHandle_t = "struct '
    'cublasContext *"`; `"opaque"` for a type to which callers have pointers only',
    "types": 'dtypes by C type: `float = "f32"`; `letter`: the dtype of the function\'s letter',
    "words": 'the library\'s constants for words of shared families: `UPPER = "CUBLAS_FILL_MODE_UPPER"`',
    "library": "The library and its conventions.",
    "library.name": "the name of the file, and of the Python module",
    "library.title": "the library's name in texts",
    "library.source": "the manual that docstrings name; without it, `<title> manual`",
    "library.backend": "`cuda`, `hip` or `sim`; without it the library runs on the CPU",
    "library.wide": "the end of names of forms with 64-bit sizes, such as `_64`",
    "library.strip": "prefixes that constants lose in Python, with spaces between",
    "library.status": "the C type of the status that functions return",
    "library.success": "the constant for success; without it, 0",
    "library.also_done": "constants of other statuses of calls that did their work",
    "library.only_asked": "constants of other statuses of calls that wrote nothing",
    "library.stream": "how the library gets the stream: `handle`, by `set_stream` of its handle; `argument`, "
    "by a parameter labelled `stream`; `none`",
    "library.scalars": "how functions take numbers: `pointer mode`, on the host or the device, by the handle's "
    "mode; `host`, by addresses of the host; `by value`",
    "library.probe": "a function whose presence shows that a file is this library",
    "library.workspace": "the end of the names of functions that return the size of a workspace, such as "
    "`_bufferSize`; such a function has parameters of the function that needs the workspace, and pointers"
    " to sizes",
    "library.uncaptured": "why a captured graph can't have the library's calls: `reason; remedy`",
    "library.last_error": "the function that returns a text about the last failure: `const char *f(void *)`, "
    "called with NULL",
    "library.sonames": "names of the library's file, the best first",
    "library.symbols": "how the library's symbols are spelled, with `{name}` or `{Name}`",
    "library.prefixes": "the prefixes that builds put before symbols",
    "library.suffixes": "the suffixes that builds put after symbols",
    "library.fetches_results": "the core fetches results for the host, because a version of the library does "
    "not wait for the stream",
    "library.adds": "names of the library's Python module, by the file of `offload_args/` that has them",
    "library.row_major": "The parameter that gives the order of matrices.",
    "library.row_major.parameter": "the parameter's name in the header",
    "library.row_major.value": "the constant for rows",
    "find": "How Python finds the library, and the remedy if it is missing.",
    "find.install": "the remedy in messages, such as `install nvidia-curand`",
    "find.pathfinder": "the library's name for cuda-pathfinder",
    "find.rocm": "the library's name for AMD's own finders",
    "find.shared_with": 'loaded modules that are linked with the library: `{ NumPy = ["module", ...] }`',
    "find.wheels": 'wheels that contain the library: `{ name-on-the-index = "module/lib/libx*.so" }`',
    "find.folders": 'folders of the library\'s vendor, as patterns: `["$X_HOME/lib", "/opt/x-*/lib"]`',
    "find.version": "The function that returns the library's version.",
    "find.version.call": "the function's symbol",
    "find.version.gives": "`text`, `parts` (by a property), `number` or `buffer`",
    "header": "The part of the header that `extract` reads.",
    "header.version": "macros whose values, joined by dots, are the version",
    "header.functions": "a pattern of the functions to take, from the start of the name",
    "header.constants": "a pattern of the constants to take; an enum is taken whole",
    "header.prefix": "the text that this build puts before names; `extract` removes it",
    "header.language": "`c++` for a header that declares more in C++",
    "header.defines": "macros to set before the header is read",
    "older": "An older version of the header; the loaded version decides between the two.",
    "older.api": "the older api file: `rocblas-2` for `api/rocblas-2.json`",
    "older.before": "the first version that has all of the newer header",
    "newer": "The functions that later versions of the library add, or lack. Families of added functions have `since`.",
    "newer.api": "the api file of the added functions: `rocblas-5` for `api/rocblas-5.json`",
    "newer.lacks": "functions of the header that later versions lack",
    "object.<name>": "A kind of object that the library makes and the caller owns.",
    "object.<name>.type": "the object's C type; if this is the type of `[handle]`, the object is the handle, "
    "and each call needs one",
    "object.<name>.class": "the name of the object's class in Python",
    "object.<name>.destroy": "the function that destroys the object",
    "object.<name>.attributes": "attributes of the object's class: `<enum> of <beginning of the functions' names>`",
    "object.<name>.placed": "the object belongs to the device that is current when the object is made",
    "object.<name>.tells": "numbers of the object that never change, for extents, each with the function that "
    'returns the number: `{ ranks = "ncclCommCount" }` is `comm.ranks` of a parameter `comm`',
    "object.<name>.describes": "The memory that such an object describes.",
    "object.<name>.describes.call": "the function that returns the description of the memory",
    "object.<name>.describes.gives": "the function's parameters after the object: a number that the function "
    "takes; `dtype`, `rank`, `shape`, `strides`; `shape[0]`; `layout[1]`: with this layout there are only"
    " as many elements as the sum of `lengths`; `unused`; `none`: NULL",
    "object.<name>.describes.bytes": "the function that returns the number of bytes",
    "enums.<name>": "The constants that a parameter with this label may take.",
    "enums.<name>.type": "the C type",
    "enums.<name>.constants": "constants of the header, or a pattern of them",
    "enums.<name>.dtypes": "in place of `constants`: the dtypes that constants stand for, `{ CUDA_R_32F = "
    '"f32" }`; other constants are refused',
    "enums.<name>.complex": "the constants for complex types, if they differ",
    "enums.<name>.from_array": "with `dtypes`: Python's None stands for the dtype of the array whose dtype the "
    "argument gives",
    "enums.<name>.flags": "constants that may be added to a constant of `constants`",
    "enums.<name>.values": "in place of `constants`: constants of a header that is not read, with values",
    "family.<name>": "Functions that differ in types only.",
    "family.<name>.bind": 'names, each with a sentence, or with letters and a sentence: `"{t}gemv" = '
    '["sdcz", "Multiplies ..."]`',
    "family.<name>.parameters": "a label for each parameter, by its name",
    "family.<name>.also": "as `[also]`, for this family",
    "family.<name>.types": "as `[types]`, for this family",
    "family.<name>.pointer_mode": "`device`: all pointers point to device memory",
    "family.<name>.written": "the hand-written C function of `csrc/` that is the body; the parameters have "
    "labels all the same",
    "family.<name>.called_by": "for a library of the CPU: the hand-written C function of `csrc/body/rotmg.h` "
    "that calls the library's function, or computes the result itself if the library's function would "
    "never return; `{name}` is the routine's name",
    "family.<name>.asks": "the functions of the library that a hand-written body calls, in order",
    "family.<name>.hides": "for a helper function: an object that has addresses in place of handles during the call",
    "family.<name>.noted_by": "for a helper function: the hand-written C function of `csrc/body/fft.h` that "
    "computes the layouts of a plan, which the plan notes for later calls",
    "family.<name>.notes": "for a helper function: an enum for a dtype, and at most 4 sizes, that the first "
    'object notes for later calls: `"precision sizes"`',
    "family.<name>.captured": "the core's own graphs can have calls of the family, even if "
    "`library.uncaptured` refuses them in a graph of the program",
    "family.<name>.group": "for a helper function without parameters: the function `begins` a group, whose "
    "calls the library issues at the group's end, or `ends` a group",
    "family.<name>.outside_groups": "for a helper function: the function is refused in a group",
    "family.<name>.outside_graphs": "for a helper function: the function is refused while a graph has calls of its "
    "first object",
    "family.<name>.aborts": "for a function with `ended`: the function may be called while another thread is "
    "in a call with the object",
    "family.<name>.optional": "a library without these functions counts as complete",
    "family.<name>.requires": 'comparisons of sizes that have to hold: `["m >= n"]`',
    "family.<name>.older": 'names in the older version: `"{t}trmm" = "{t}trmm_outofplace"`',
    "family.<name>.since": "Functions that are wrong, or take other arguments, in older versions of the library.",
    "family.<name>.since.version": "the first version whose function is called",
    "family.<name>.since.why": "the reason, for the message",
    "handle.shared": "several threads may use a handle at once; without it, a handle serves one call at a time",
    "handle.workspace_bytes": "the bytes that `region.capture()` gives a handle by `set_workspace`",
    "[not_bound]": "Functions that are not bound, with the reason. Each function of the header is bound, or in "
    "such a list.",
    "[not_bound].names": "a pattern of the functions' whole names in the header: `cublasXt\\w+`",
    "[not_bound].reason": "the reason",
    "[only_raw]": "Functions that only `<library>.raw` has. `raw` checks nothing but the number of arguments.",
    "[only_raw].names": "a pattern of the functions' whole names in the header",
    "[only_raw].reason": "the reason",
}
HANDLE = {
    "type": "the handle's C type; a parameter of this type without a label is the handle",
    "create": "the function that makes a handle; if that function takes settings, leave this key out: each "
    "call then needs a handle of `[object]`",
    "destroy": "the function that destroys a handle",
    "set_stream": "the function that sets a handle's stream",
    "get_stream": "the function that returns a handle's stream",
    "set_pointer_mode": "the function that sets the pointer mode: whether numbers are on the host or on the device",
    "get_pointer_mode": "the function that returns the pointer mode",
    "set_workspace": "the function that gives a handle device memory as the workspace of its calls",
    "handles_of": "another library, whose handles the functions take: `rocblas`",
    "host_mode": "the constant for numbers on the host",
    "device_mode": "the constant for numbers on the device",
}
ENUM = Label(r"\w+", "<name of [enums]>", "a constant of the vendor; with `dtypes`, a constant that stands for a dtype")
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
    "described": ("described(xDesc)", "the elements that a descriptor describes, of the descriptor's dtype"),
    "bytes": ("bytes(n)", "n bytes of any dtype"),
    "strided": ("strided(matrix(...), stride, count)", "`count` of any extents above, whose starts are `stride` apart"),
    "pointers": ("pointers(matrix(...), count)", "`count` of any extents above, each at a pointer of an array"),
    "grouped": (
        "grouped(matrix(...), groups, size)",
        "an array of pointers to groups of extents; each group has separate values of the names that are lists",
    ),
}
TYPED = {
    "of Btype": "after an extent: the argument `Btype`, an enum with dtypes, gives the dtype of the `void *`",
    "of params": "after an extent, with an object that describes no memory: the object gives the dtype, which "
    "a function with `notes` noted. A call with an object without a noted dtype is refused. `params[0]` "
    "in an extent is a noted size",
}
