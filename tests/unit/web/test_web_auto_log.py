# SPDX-License-Identifier: GPL-2.0-or-later
"""Auto-shaping's log: lines, and what is folded."""

from sluice_web.auto_log import folded, line


def decision(sentence, reason="disk room", change=("media", "batch", 45e6, 22e6), **more):
    action = None
    if change:
        domain, name, before, after = change
        action = {
            "domain": domain,
            "class": name,
            "resource": "blk-read",
            "from_bytes_per_second": before,
            "to_bytes_per_second": after,
        }
    row = {"at": 1.0, "sentence": sentence, "stream": "movie", "reason": reason}
    return {**row, "action": action, "dry_run": False, **more}


def test_a_line_is_the_subject_and_the_largest_change():
    said = line(decision("Stall risk on movie: disk wait 41 ms, 12 ahead; batch blk-read 45 → 22"))
    assert said == "Stall risk on movie; batch on media 45.0 MB/s → 22.0 MB/s disk read"
    lifted = decision(
        "Limits on the disk lifted, nobody waits: …", change=("web", "http", 1e6, None)
    )
    assert line(lifted) == (
        "Limits on the disk lifted, nobody waits; http on web 1.00 MB/s → unlimited disk read"
    )
    assert line(decision("The queue before movie has drained; x", change=None)) == (
        "The queue before movie has drained"
    )


def test_what_follows_each_other_and_is_alike_is_one_entry():
    fault = [decision(f"Fault on movie: {n} stalls", "stream fault", None) for n in range(13)]
    rooms = [decision(f"Room: {n}") for n in range(2)]
    entries = folded([*fault, rooms[0], fault[0], rooms[1]])
    assert [entry["more"] for entry in entries] == [12, 0, 0, 0]
    # The line of the newest, and every sentence is still there.
    assert entries[0]["line"] == "Fault on movie: 0 stalls"
    assert entries[0]["rows"] == fault


def test_what_differs_is_not_folded():
    one = decision("Room: 1")
    others = [
        decision("Room: 1", "link room"),
        decision("Room: 1", stream="other"),
        decision("Room: 1", dry_run=True),
        decision("Room: 1", change=("web", "batch", 45e6, 22e6)),
        decision("Room: 1", change=("media", "http", 45e6, 22e6)),
    ]
    for other in others:
        assert len(folded([one, other])) == 2
    assert folded([]) == []
