"""The faults in scripts/plant_faults.py still match the core's source."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("plant_faults", ROOT / "scripts" / "plant_faults.py")
assert _spec and _spec.loader
plant_faults = importlib.util.module_from_spec(_spec)
sys.modules["plant_faults"] = plant_faults
_spec.loader.exec_module(plant_faults)


@pytest.mark.parametrize("fault", plant_faults.FAULTS, ids=lambda fault: fault.name)
def test_the_line_that_a_fault_replaces_is_in_the_core_once(fault: Any) -> None:
    assert fault.right in fault.place(ROOT).read_text()


def test_a_text_that_is_gone_from_the_core_is_named(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "a.c").write_text("one; two; two;")
    assert plant_faults.Fault("a fault", "one;", "").place(tmp_path) == tmp_path / "csrc" / "a.c"
    for text in ("two;", "three;"):
        with pytest.raises(LookupError, match=f"a fault: needs '{text}' once"):
            plant_faults.Fault("a fault", text, "").place(tmp_path)
