# SPDX-License-Identifier: GPL-2.0-or-later
"""What a tree needs to be installed, and what differs between two states of it."""

from testbed.debian_root import Entry, difference, stanzas, wanted_by

INDEX = """\
Package: sluice-web
Depends: python3-flask (>= 3), gunicorn | python3-gunicorn, sluice-controller,
 sysvinit-utils
Description: web
 .
 more

Package: sluice-agent
Recommends: procps
"""


def test_stanzas_are_read():
    first, second = stanzas(INDEX)
    assert first["Package"] == "sluice-web"
    assert second == {"Package": "sluice-agent", "Recommends": "procps"}


def test_own_packages_are_not_wanted_and_alternatives_are_the_first():
    names = wanted_by(stanzas(INDEX), ("Depends",))
    assert names == {"python3-flask", "gunicorn", "sysvinit-utils"}


def test_every_difference_is_told():
    same, other = Entry("-rw-r--r--", (0, 0), "a"), Entry("-rw-r--r--", (0, 0), "b")
    lines = difference(
        {"/same": same, "/gone": same, "/x": same}, {"/same": same, "/x": other, "/n": same}
    )
    assert [line.split(":")[0] for line in lines] == ["new", "gone", "changed"]
