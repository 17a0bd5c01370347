# SPDX-License-Identifier: GPL-2.0-or-later
"""Who is in the way of a listener."""

import os
import socket

import pytest
from ansible_collections.sluice.appliance.plugins.module_utils.listeners import (
    in_the_way,
    read_table,
    sockets_of,
    tables,
)

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2120 00000000:0000 0A 00000000:00000000 00:00000000 00000000   995        0 4711 1 0
   1: 0100007F:2120 0100007F:A0B2 01 00000000:00000000 00:00000000 00000000   995        0 4712 1 0
"""
TABLE6 = """\
  sl  local_address                         remote_address                        st tx_queue …
   0: 00000000000000000000000001000000:2120 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9
"""


def test_only_what_listens_counts():
    (one,) = read_table(TABLE)
    assert (str(one.address), one.port, one.inode) == ("127.0.0.1", 8480, 4711)
    (one,) = read_table(TABLE6)
    assert (str(one.address), one.port, one.inode) == ("::1", 8480, 9)


@pytest.mark.parametrize(
    ("host", "port", "found"),
    [
        ("127.0.0.1", 8480, True),
        ("0.0.0.0", 8480, True),
        ("::", 8480, True),
        # Any address, perhaps this one.
        ("kvm1.example.net", 8480, True),
        ("127.0.0.2", 8480, False),
        ("127.0.0.1", 8481, False),
    ],
)
def test_who_is_in_the_way(host, port, found):
    assert bool(in_the_way(host, port, read_table(TABLE))) == found


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0"])
def test_this_machines_own_listener_is_seen_with_its_holder(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((address, 0))
        listener.listen()
        there = in_the_way(address, listener.getsockname()[1], tables())
        assert [str(one.address) for one in there] == [address]
        assert there[0].inode in sockets_of(os.getpid())
    assert sockets_of(0) == set()
