# SPDX-License-Identifier: GPL-2.0-or-later
"""What counts as having come with packages, and what does not."""

import time

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils.traces import (
    LATE_SECONDS,
    LONGEST_STEP_SECONDS,
    Look,
    Traces,
    claimed,
    info_files,
    is_system,
    read_traces,
    spans_of,
)
from hypothesis import given
from hypothesis import strategies as st

NOTHING = {"users": [], "groups": [], "paths": []}


def moment(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


@pytest.fixture
def folder(tmp_path):
    """dpkg's folder of a host with one package that has a script and descriptions."""
    info = tmp_path / "var/lib/dpkg/info"
    system = tmp_path / "usr/lib/systemd/system"
    system.mkdir(parents=True)
    info.mkdir(parents=True)
    (tmp_path / "usr/lib/sysusers.d").mkdir()
    (info / "format").write_text("1\n")
    (info / "polkitd:amd64.list").write_text(
        "/.\n/etc\n/etc/polkit-1\n/usr/lib/systemd/system/polkit.service\n"
        "/usr/lib/sysusers.d/polkit.conf\n"
    )
    (info / "polkitd:amd64.postinst").write_text(
        "#!/bin/sh\n# as in /etc/passwd-old\nQEMU_USER='libvirt-qemu'\n"
        'if [ -d "/var/lib/polkit-1/" ]; then rm -fr /var/lib/polkit-1/.cache; fi\n'
        "adduser --quiet --system --ingroup kvm \\\n  --gecos 'Libvirt Qemu' $QEMU_USER\n"
        "addgroup --system libvirt || exit 1\necho postgres\n"
    )
    (system / "polkit.service").write_text("[Service]\nStateDirectory=rules other\n")
    (tmp_path / "usr/lib/sysusers.d/polkit.conf").write_text('u! polkitd - "polkit" /\ng tss -\n')
    return tmp_path


def traces_of(folder):
    return read_traces(str(folder), info_files(str(folder / "var/lib/dpkg/info")))


def test_files_scripts_and_units_name_paths(folder):
    paths = traces_of(folder).paths
    for path in ("/etc/polkit-1", "/var/lib/polkit-1", "/var/lib/rules", "/var/lib/other"):
        assert f"{folder}{path}" in paths
    assert f"{folder}/etc/passwd-old" not in paths
    assert f"{folder}/var/lib/rule" not in paths


def test_scripts_and_sysusers_name_users_and_groups(folder):
    accounts = traces_of(folder).accounts
    assert {"libvirt-qemu", "libvirt", "kvm", "polkitd", "tss"} <= accounts
    assert "postgres" not in accounts and "polkit" not in accounts


def test_a_link_is_theirs_if_it_enables_a_unit_of_theirs(folder):
    traces = traces_of(folder)
    unit = f"{folder}/usr/lib/systemd/system/polkit.service"
    merged = f"{folder}/lib/systemd/system/polkit.service"
    assert traces.account_for("/etc/systemd/system/alias.service", [unit])
    assert traces.account_for("/etc/systemd/system/x.wants", [merged])
    assert not traces.account_for("/etc/systemd/system/x.wants", [unit, "/opt/own.service"])
    assert not traces.account_for("/etc/systemd/system/empty.wants", [])


def test_only_what_all_evidence_speaks_for_is_claimed():
    traces = Traces({"/etc/a", "/etc/old", "/var/lib/late"}, {"libvirt", "deploy", "root"})
    now = Look(
        {"root": 0, "libvirt": 120, "deploy": 1000, "postgres": 121},
        {"libvirt": 120},
        {path: () for path in ("/etc/a", "/etc/old", "/var/lib/late", "/etc/myapp")},
    )
    born = {"/etc/a": 15.0, "/etc/old": 15.0, "/var/lib/late": 99.0, "/etc/myapp": 15.0}
    before = {"users": ["root"], "groups": [], "paths": ["/etc/old"]}
    assert claimed(before, now, traces, born, [(10, 20)]) == {
        "users": ["libvirt"],
        "groups": ["libvirt"],
        "paths": ["/etc/a"],
    }
    assert claimed(NOTHING, now, traces, {}, [(10, 20)])["paths"] == []


@given(
    born=st.floats(0, 100),
    spans=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=4),
    named=st.booleans(),
    there=st.booleans(),
)
def test_nothing_is_claimed_outside_the_spans_or_unnamed_or_old(born, spans, named, there):
    now = Look({}, {}, {"/etc/a": ()})
    before = {**NOTHING, "paths": ["/etc/a"] if there else []}
    found = claimed(before, now, Traces({"/etc/a"} if named else set()), {"/etc/a": born}, spans)
    inside = any(begin <= born <= end for begin, end in spans)
    assert bool(found["paths"]) == (inside and named and not there)


@pytest.mark.parametrize(
    ("number", "system"),
    [(0, False), (1, True), (999, True), (1000, False), (59999, False), (64055, True)],
)
def test_people_have_no_ids_of_the_systems(number, system):
    assert is_system(number) is system


LOG = """\
2026-03-01 10:00:00 startup archives unpack
2026-03-01 10:00:01 install libvirt0:amd64 <none> 11.3
2026-03-01 10:00:05 status half-installed libvirt0:amd64 11.3
2026-03-01 10:00:07 install other:amd64 <none> 1
2026-03-01 10:01:00 configure libvirt-daemon:amd64 11.3 <none>
not a line
2026-04-01 10:00:00 startup packages configure
2026-04-01 10:00:02 status installed other:amd64 1
"""


def test_dpkgs_log_tells_when_packages_were_installed():
    names = ["libvirt0", "libvirt-daemon"]
    first = moment("2026-03-01 10:00:01")
    spans = spans_of(LOG, names, first - 100)
    assert spans == [
        (first, first + 4 + LATE_SECONDS),
        (first + 4, first + 6 + LATE_SECONDS),
        # Killed there: what is a month later has nothing to do with it.
        (first + 59, first + 59 + LONGEST_STEP_SECONDS + LATE_SECONDS),
    ]
    assert spans_of(LOG, names, first + 100) == []
    assert spans_of(LOG, ["none"], 0) == [] == spans_of("", names, 0)
    assert spans_of(LOG, names, float("inf")) == []
