"""The page on the generator's words: its example is a complete library, and its tables agree with the classes."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # last, so that the installed offload_args is imported, not its sources

from bindings import __main__ as workshop  # noqa: E402
from bindings import emit, labels, meanings, roles, schema  # noqa: E402
from bindings.expressions import EXPRESSIONS, Names  # noqa: E402
from bindings.labelled import EXTENTS, Enum  # noqa: E402
from bindings.parameters import CLAUSES, Array, EnumValue, Parameter, Size  # noqa: E402
from recording import legal  # noqa: E402

PAGE = (ROOT / "bindings" / "README.md").read_text()


def test_the_library_of_12_lines_is_complete() -> None:
    text = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    assert text.count("\n") <= 13  # 12 lines with words, and empty lines
    declared = re.findall(r"^(\w+) (mini_\w+)\((.*)\);", PAGE, re.MULTILINE)
    functions = {
        symbol: {
            "returns": returns,
            "parameters": [
                [parameter.split()[-1].lstrip("*"), parameter.rpartition(" ")[0] + " *" * ("*" in parameter)]
                for parameter in parameters.split(", ")
            ],
        }
        for returns, symbol, parameters in declared
    }
    api = {"header": "mini.h", "version": "1", "functions": functions, "enums": {}}
    library = roles.join("mini", api, tomllib.loads(text))
    records = {function.name: [role[:3] for role in emit.record(library, function)] for function in library.functions}
    assert records == {
        "scale": [("size", "n", ""), ("scalar", "alpha", "f64"), ("inout", "x", "f64")],
        "sum": [("size", "n", ""), ("in", "x", "f64"), ("result", "result", "f64")],
    }
    assert emit.faults(library) == []


def test_links_of_the_page_lead_to_headings_of_the_words() -> None:
    headings = re.findall(r"^#+ (.*)$", emit.words(), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    links = re.findall(r"\]\(words\.md#([^)]*)\)", PAGE)
    assert len(links) > 10
    assert [link for link in links if link not in anchors] == []


def test_each_word_has_a_meaning_and_no_other_has() -> None:
    words = " ".join(emit.words().split())
    assert [word for word, text in meanings.MEANINGS.items() if text not in words] == []
    placeholders = [f"`{{{placeholder}}}`" for placeholder in schema.PLACEHOLDERS]
    assert [placeholder for placeholder in placeholders if placeholder not in words] == []


def test_check_finds_words_that_are_not_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "words", lambda: "others")
    monkeypatch.setattr(workshop.roles, "load", lambda _: [legal.library("curand")])  # small, and already read
    assert "words.md is not current; run python -m bindings report" in workshop.check()


@pytest.mark.parametrize("kind", labels.CLASSES)
def test_the_example_of_a_label_fits_its_pattern(kind: type[Parameter]) -> None:
    for label in vars(kind).get("labels", ()):
        examples = [label.example] if "(" in label.example else label.example.split(", ")
        assert [example for example in examples if not re.fullmatch(label.pattern, example)] == []


def test_the_example_of_a_clause_fits_its_pattern_and_no_other() -> None:
    for key, clause in CLAUSES.items():
        assert [
            other for other, other_clause in CLAUSES.items() if re.fullmatch(other_clause.pattern, clause.example)
        ] == [key]


def test_the_examples_of_expressions_are_expressions() -> None:
    enum = EnumValue(name="trans", c_type="int", enum=Enum("int", (("OP_N", 0), ("OP_T", 1))))
    sizes = [Size(name=name, c_type="int", label="size") for name in ("m", "n")]
    names = Names([*sizes, enum], ["OP_N", "OP_T"])
    for text in EXPRESSIONS:
        if text not in ("xDesc[1]", "comm.ranks"):
            expression = ast.parse(text, mode="eval").body
            checks = (names.size, names.test, names.requirement)
            assert any(not list(check(expression)) for check in checks), text


def test_every_class_of_a_bound_parameter_has_a_label_or_needs_none() -> None:
    without = {"Handle", "DeviceNumber", "EnumValue", "DataType"}
    used = {
        type(argument)
        for library in legal.libraries().values()
        for function in library.functions
        for argument in function.arguments
    }
    assert {class_.__name__ for class_ in used if not class_.labels} <= without
    assert all(dataclasses.is_dataclass(class_) for class_ in labels.CLASSES)


# {class: another class whose labels begin with or contain the same word}: `keeps`, `gives address`, `bytes`.
SAME_WORD = {"HeldObject": "Kept", "GivenPlace": "Address", "GivenBytes": "ByValue"}


def test_each_word_serves_at_least_four_functions() -> None:
    """A word for fewer functions costs a reader more than a hand-written body, or than a function in raw only."""
    functions = [function for library in legal.libraries().values() for function in library.functions]
    counts: Counter[str] = Counter()
    for function in functions:
        arrays = [argument for argument in function.arguments if isinstance(argument, Array)]
        names = {type(argument).__name__ for argument in function.arguments}
        names = {SAME_WORD.get(name, name) for name in names}
        names |= {array.extent.kind for array in arrays}
        names |= {key for key in CLAUSES for array in arrays if getattr(array, key, None)}
        counts.update(names)
    words = {class_.__name__ for class_ in labels.CLASSES} - SAME_WORD.keys()
    words |= {*EXTENTS, *CLAUSES} - {"despite_const"}  # this word leaves no trace in a parameter
    assert {word: counts[word] for word in words if counts[word] < 4} == {}
