import os
import runpy
import sys
from unittest import mock

import pytest

from helpers import PROJECT

FILES = [path for folder in ("benchmarks", "tools") for path in (PROJECT / folder).rglob("*.py")]
PROGRAMS = [path for path in sorted(FILES) if '__name__ == "__main__"' in path.read_text("utf-8")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_help_is_printed_before_any_work(program, monkeypatch, capsys):
    """In this process, which has imported what takes long, and whose environment is put back."""
    monkeypatch.setattr(sys, "argv", [str(program), "--help"])
    with mock.patch.dict(os.environ), pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(program), run_name="__main__")
    assert not stopped.value.code
    assert capsys.readouterr().out.startswith("usage: ")
