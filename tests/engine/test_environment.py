"""Changes of the environment that other threads' C code must not see."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

from flowctl.engine.environment import change_environment


def in_c(name: str) -> bytes | None:
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    found: bytes | None = getenv(name.encode())
    return found


def test_python_and_its_children_see_a_change_and_the_c_library_does_not() -> None:
    os.environ["FLOWCTL_TEST_THERE"] = "before"
    try:
        with change_environment({"FLOWCTL_TEST_THERE": None, "FLOWCTL_TEST_NEW": "yes"}):
            assert os.environ["FLOWCTL_TEST_NEW"] == "yes" and "FLOWCTL_TEST_THERE" not in os.environ
            assert in_c("FLOWCTL_TEST_NEW") is None and in_c("FLOWCTL_TEST_THERE") == b"before"
            code = "import os; print(os.environ.get('FLOWCTL_TEST_NEW'), os.environ.get('FLOWCTL_TEST_THERE'))"
            child = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True)
            assert child.stdout.split() == ["yes", "None"]
        assert "FLOWCTL_TEST_NEW" not in os.environ and os.environ["FLOWCTL_TEST_THERE"] == "before"
    finally:
        del os.environ["FLOWCTL_TEST_THERE"]
