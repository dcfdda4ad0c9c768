"""Plans from which C makes the usual calls of a routine: the kinds of its arguments, and their form in a call.

    @planned(_TRMV, "A:nn x:n", "n", "uplo^ trans^ diag", orders=True)

In this plan, A is square and x has the same size. The library's function takes uplo, trans, diag and n before the
arrays. The values of uplo and trans are exchanged if A is passed as its transpose; a library with row-major order needs
no exchange.
"""

from __future__ import annotations

from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from .._advice import is_of_signature, signature_error, title, written_as
from .._core import planned as builtin_of
from .._core import reused
from .._names import note_names
from ..display import described, shown
from ..errors import ArgumentTypeError, OffloadError
from ..pointers import DevicePtr
from ._vendors import InNewPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._routine import Routine
    from ._vendors import Enums

__all__ = ["planned"]

P = ParamSpec("P")
R = TypeVar("R")

_SIZES: Final = ("m", "n", "k", "kl", "ku")
# The kinds of operands, as in _core/blas.c. A vector or matrix has its sizes instead of a kind.
_WHAT: Final = {"": 0, "same": 1, "packed": 4, "band": 5, "1": 6, "5": 7, "5?": 8, "any": 9}
_VECTOR, _MATRIX = 2, 3
_EXCHANGES: Final = {"": 0, "^": 1, "^^": 2, "!": 3}


def planned(
    routine: Routine | None,
    arguments: str,
    sizes: str,
    options: str = "",
    *,
    strided: Routine | None = None,
    turned: str = "",
    hermitian: str = "",
    orders: bool = False,
    absolute: bool = False,
    lists: bool = False,
    names: dict[str, str] | None = None,
    names_turned: dict[str, str] | None = None,
    product: Routine | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let C make the usual calls of a function; the function itself makes all other calls.

    routine: the routine for matrices. strided: the routine for batches in one array. Each is None if the library has no
    such routine. lists: whether matrices are in lists of pointers.

    arguments: "x:n" is a vector of n elements, "A:mn" a matrix, "x:n/m@trans" a vector of n elements for the first
    letter of the option trans, and of m elements for other letters. "~A:mn" is a matrix whose order may differ from the
    order of the call. "ap:packed" and "ab:band" have n columns, or n rows if stored by rows; "ab:band/m" has m rows.
    "a:1" has 1 element, and "param:5" has 5. Other arguments are numbers; with "alpha:same", a DevicePtr to the number
    needs the dtype of the arrays.
    turned: the names of the arguments in the order for transposes, if this order differs.

    sizes: the sizes in a call of the library; after a "/", those in a call for the transposes. options: "uplo^" is
    exchanged in a call for the transposes, "uplo^A" if A is stored as its transpose, and "trans!A" if exactly one of
    these two conditions holds.

    hermitian: the storage that complex matrices need: "one order" for all, or "columns". orders: whether libraries that
    have both orders take matrices unchanged. absolute: whether the direction of a vector has no effect. names: {the
    library's name of an operand: the caller's name}. names_turned: the same for a call for the transposes, if the names
    differ. product: the routine gemm, if large calls in panels need it (_core/panels.c).
    """
    order = [argument.strip("~").partition(":")[0] for argument in arguments.split()]
    places = [order.index(name) for name in turned.split()] or list(range(len(order)))
    chosen = [_option(option) for option in options.split()]
    operands = tuple(
        (*_operand(argument, [name for name, _, _ in chosen]), place)
        for argument, place in zip(arguments.split(), places, strict=True)
    )
    straight, _, other = sizes.partition("/")
    passed = tuple(tuple(map(_SIZES.index, text.split())) for text in (straight, other or straight))

    def note(error: BaseException, is_turned: int) -> None:
        known = names_turned if is_turned and names_turned else names
        if known and isinstance(error, OffloadError):
            note_names(error, known)

    def made_of(function: Callable[P, R]) -> Callable[P, R]:
        defaults = function.__kwdefaults__ or {}
        known = (routine or strided).options  # type: ignore[union-attr]
        turned_options = list(range(len(chosen)))
        if turned and all(of for _, _, of in chosen):  # each matrix keeps its option
            turned_options.sort(key=lambda i: places.index(order.index(chosen[i][2])))
        rules = tuple(
            (
                name,
                "".join(known[name]),
                known[name].index(defaults[name]),
                _EXCHANGES[how],
                order.index(of or order[0]),
            )
            for name, how, of in chosen
        )
        builtin = builtin_of(
            _telling_of_scalars(function, order, operands),
            function.__name__,
            signature_of(function),
            function.__module__,
            partial(_choose, hermitian, orders, product),
            note if names or names_turned else None,
            routine,
            strided,
            operands,
            tuple(order),
            tuple((*rule, place) for rule, place in zip(rules, turned_options, strict=True)),
            passed,
            (
                orders,
                absolute,
                function.__name__ in ("iamax", "iamin"),
                "kl" in sizes,
                "order" in defaults,
                lists,
                "result" in defaults,
            ),
        )
        if function in reused:
            reused[builtin] = reused.pop(function)
        return builtin  # type: ignore[no-any-return]

    return made_of


def _telling_of_scalars(function: Callable[P, R], order: list[str], operands: tuple[Any, ...]) -> Callable[P, R]:
    """Return a function whose TypeError names missing scalars, misplaced arguments, and the function's signature.

    order: the names of the arguments. operands: the kinds of the arguments. Python's own error would name the last
    arguments instead of the scalars.
    """
    scalars = {name for name, (kind, *_) in zip(order, operands, strict=True) if kind in (_WHAT[""], _WHAT["same"])}

    def telling(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except (TypeError, ValueError) as error:
            if not isinstance(error, TypeError) or not is_of_signature(error):
                if wrong := _misplaced(order, scalars, arguments, keywords):
                    raise ArgumentTypeError(f"{title(function)}: {wrong}; {written_as(function)}") from None
                raise
            missing, argument = _left_out([name for name in order if name not in keywords], arguments, scalars)
            if not missing:
                failure = signature_error(function, error)
                if len(arguments) + len(keywords) < len(order) and order[-1] in {*"yC"}:
                    failure.args = (f"{failure}, where {order[-1]} is an array that gets the result",)
                raise failure from None
        overwrites = "beta" in missing and order[-2] == "beta"
        standard = dict.fromkeys(missing, "1.0") | ({"beta": "0.0"} if overwrites else {})
        form = ", ".join(standard.get(name, name) for name in order)
        raise ArgumentTypeError(
            f"{title(function)}() missing {len(missing)} required positional argument{'s' * (len(missing) > 1)}: "
            f"{' and '.join(map(repr, missing))}, got {_described(argument)} in place of {missing[0]}; write "
            f"{title(function)}({form}){f', where 0.0 overwrites {order[-1]}' if overwrites else ''}"
        )

    return telling


def _is_array(value: object) -> bool:
    return isinstance(value, (list, tuple)) or getattr(value, "_shape", ()) != ()


def _described(value: object) -> str:
    return f"a pointer of shape {value._shape}" if isinstance(value, DevicePtr) else described(value)


def _misplaced(order: list[str], scalars: set[str], arguments: Sequence[Any], keywords: dict[str, Any]) -> str:
    """Return a text about an array in a scalar's place and a number in an array's place; "" if there are none."""
    values = dict(zip([name for name in order if name not in keywords], arguments, strict=False)) | keywords
    arrays = [name for name in order if name in scalars and _is_array(values.get(name, 0))]
    numbers = [name for name in order if name not in scalars and isinstance(values.get(name), Number)]
    if not arrays or not numbers:
        return ""
    return (
        f"{arrays[0]} needs a number, got {_described(values[arrays[0]])}, and {numbers[0]} needs a DevicePtr, got "
        f"{shown(values[numbers[0]])}"
    )


def _left_out(names: list[str], arguments: Sequence[Any], scalars: set[str]) -> tuple[list[str], Any]:
    """Return the names of the missing scalars, and the array in place of the first; none if another fault exists."""
    missing: list[str] = []
    argument, rest = None, list(arguments)
    for name in names:
        is_array = bool(rest) and _is_array(rest[0])
        if name in scalars and is_array:
            argument = argument if missing else rest[0]
            missing.append(name)
        elif not rest or is_array == (name in scalars):
            return [], None
        else:
            rest.pop(0)
    return ([], None) if rest else (missing, argument)


def signature_of(function: Callable[..., Any]) -> str:
    """Return the text for a builtin that stands for a function: its signature, its typed signature, its docstring.

    `inspect.signature` reads the first signature, from which types are dropped. So only the second signature has the
    types.
    """
    code, defaults, types = function.__code__, function.__kwdefaults__ or {}, function.__annotations__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    plain, typed = ([*names[: code.co_argcount], *["*"][: code.co_kwonlyargcount]] for _ in range(2))
    for name in names[code.co_argcount :]:
        plain.append(f"{name}={defaults[name]!r}" if name in defaults else name)
        typed.append(f"{name}: {types[name]}{f' = {defaults[name]!r}' if name in defaults else ''}")
    typed[: code.co_argcount] = [f"{name}: {types[name]}" for name in names[: code.co_argcount]]
    signature = f"{function.__name__}({', '.join(typed)}) -> {types['return']}"
    text = function.__doc__ or ""
    margin = text[len(text.rstrip(" ")) :]  # the indentation; Python 3.13 and newer remove it
    return f"{function.__name__}({', '.join(plain)})\n--\n\n{signature}\n\n{margin}{text}"


def _option(text: str) -> tuple[str, str, str]:
    """Return an option's name, the condition of its exchange, and the matrix of this condition."""
    for mark in "^!":
        name, separator, of = text.partition(mark)
        if separator:
            return name, mark * (1 + (mark == "^" and of != "")), of
    return text, "", ""


def _operand(text: str, options: list[str]) -> tuple[int, tuple[int, ...], int, int]:
    """Return an argument for C: kind, sizes for both values of an option, the option, and 1 if its order is free."""
    _, _, layout = text.partition(":")
    if layout == "band/m":
        return _WHAT["band"], (1, 0, 1, 0), -1, 0
    if layout in _WHAT:
        return _WHAT[layout], (1, 1, 1, 1), -1, 0
    shapes, _, option = layout.partition("@")
    both = [[_SIZES.index(letter) for letter in shape] for shape in shapes.split("/")]
    first, second = both[0], both[-1]
    kind = _MATRIX if len(first) == 2 else _VECTOR
    return kind, (first[0], first[-1], second[0], second[-1]), options.index(option) if option else -1, text[0] == "~"


def _choose(
    hermitian: str, as_they_lie: bool, product: Routine | None, routine: Routine, pointer: DevicePtr
) -> tuple[Any, ...] | None:
    """Return the vendor's function for a routine, and the values of its options; None if there is none."""
    try:
        call, by_rows, enums = routine.of(pointer)
    except KeyError:  # the Python function raises the error for this dtype
        return None
    if call is None:
        return None
    orders: tuple[Any, Any] = None, None
    if isinstance(call, partial):
        orders, call = (*call.args, *by_rows.args), call.func
    in_place = not isinstance(call, InNewPlace)
    if isinstance(call, InNewPlace):
        call = call.function
    tables = []
    for option, letters in routine.options.items():
        pair = _values(enums, option, routine.name)
        tables.append(tuple(table[letter] for table in pair for letter in letters))
    limit = hermitian if enums.conjugates and not (as_they_lie and isinstance(orders[0], int)) else ""
    gemm: Any = product.of(pointer).call if product else None
    gemm = gemm.func if isinstance(gemm, partial) else gemm
    return call, orders, tuple(tables), limit != "", limit == "columns", in_place, enums.base, gemm


def _values(enums: Enums, option: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of an option for a matrix, and for a matrix stored as its transpose."""
    if option == "diag":
        return enums.diag, enums.diag
    if not option.startswith("trans"):
        return getattr(enums, option)  # type: ignore[no-any-return]
    if enums.conjugates and name in ("syrk", "syr2k"):
        return enums.op[0] | {"C": None}, enums.op[1]
    if enums.conjugates and name in ("herk", "her2k"):  # the operands of conj(C) are A^T and B^T
        op = enums.op[0]
        return op | {"T": None}, {"N": op["C"], "T": None, "C": op["N"]}
    return enums.op
