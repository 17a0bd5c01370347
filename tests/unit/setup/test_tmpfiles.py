# SPDX-License-Identifier: GPL-2.0-or-later
"""The folders that two packages make, since each must work without the other."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[3]


def lines(path):
    return [line for line in (TOP / path).read_text().splitlines() if not line.startswith("#")]


def test_controller_and_qemu_make_the_same_folders():
    controller = lines("controller/debian/sluice-controller.sluice.tmpfiles")
    assert controller == lines("qemu-patches/debian/sluice-qemu.tmpfiles")
    # systemd says nothing of lines that are the same, and ignores one that differs.
    assert "d /run/sluice/pages 3770 root 64055 -" in controller
