# SPDX-License-Identifier: GPL-2.0-or-later
"""What httperf says of itself is told of the start that it belongs to."""

from types import SimpleNamespace

import pytest

from testbed.clients import Visitors

SUMMARY = """Total: connections {0} requests {0} replies 18 test-duration 7.5 s
Errors: total 9 client-timo 9 socket-timo 0
"""


@pytest.mark.parametrize(("printed", "told"), [(SUMMARY.format(200), 200), ("killed", None)])
def test_what_httperf_said_at_an_earlier_start_is_not_told_of_a_later_one(tmp_path, printed, told):
    def popen(_command, *, name, **_options):
        with (tmp_path / f"{name}.log").open("a") as log:
            log.write(prints.pop(0) if name == "httperf" else "")
        return SimpleNamespace(
            signal=lambda _number: None,
            wait=lambda _seconds: 0,
            stop=lambda grace_seconds: None,
        )

    prints = [SUMMARY.format(100), printed]
    visitors = Visitors(SimpleNamespace(logs=tmp_path, client_popen=popen), "web", lambda _s: ())
    found = []
    for _start in (1, 2):
        visitors.start(1_000_000, 1.5, 1, 0.1, 60)
        result = visitors.stop()
        found.append(result and result.connections)
    assert found == [100, told]
