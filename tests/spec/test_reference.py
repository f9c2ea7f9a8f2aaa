"""The generated parts of the documentation say what the schemas and capabilities say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_docs.py"


def test_what_is_generated_is_up_to_date() -> None:
    """After a change of a schema or of capabilities: ``python scripts/write_docs.py``."""
    found = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True)
    assert (found.returncode, found.stdout.strip(), found.stderr) == (0, "", "")
