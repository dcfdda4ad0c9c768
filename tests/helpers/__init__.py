"""Code that several tests share: references, operands, the driver of a GPU, Ctrl-C, a model of the rules."""

import pytest

pytest.register_assert_rewrite("vendor")  # for the cases of tests/vendor, which are no test files
