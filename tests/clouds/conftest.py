"""The contract's assertions say what they compared, as those of a test module do."""

import pytest

pytest.register_assert_rewrite("tests.clouds.contract")
