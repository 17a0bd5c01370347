# SPDX-License-Identifier: GPL-2.0-or-later
"""What a sandbox says when its namespaces cannot be made."""

from pathlib import Path

import pytest

from testbed import sandbox


def test_an_error_quotes_the_end_of_the_holders_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "logs").mkdir()
    broken = tmp_path / "holder.py"
    broken.write_text("raise SystemExit('the reason is in the log')\n")
    monkeypatch.setattr(sandbox, "HOLDER", broken)
    with pytest.raises(sandbox.SandboxError) as raised:
        sandbox.Sandbox(tmp_path, {}).open()
    text = str(raised.value)
    assert "no answer" in text and "holder.log" in text
    assert text.endswith("the reason is in the log")
