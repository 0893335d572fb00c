"""The peers are an extra: tests need them, nothing else does."""

import importlib
from importlib.util import find_spec
from types import ModuleType

import pytest

PACKAGES = ("fla", "transformers", "mamba_ssm")


def table_or_skip() -> ModuleType:
    """:mod:`tests.peers.table`; without the peers the test module that asks for it is skipped."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: make test-peers", allow_module_level=True)
    return importlib.import_module("tests.peers.table")
