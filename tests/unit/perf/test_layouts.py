# SPDX-License-Identifier: GPL-2.0-or-later
"""perf.layouts: emulators that differ in nothing but where their functions lie."""

import json
import random
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf import layouts

LINK = "cc -o qemu-system-x86_64 a.o b.o -Wl,-z,now libx.a c.o -lm"
FUNCTION = "int {name}(void) {{ return {value}; }}\n"
OBJECTS = [f"part{number}" for number in range(8)]


@given(st.lists(st.sampled_from(["a.o", "b.o", "c.o", "-lm", "x.a"])), st.integers())
def test_nothing_is_lost_and_what_is_of_another_kind_stays(words, seed):
    found = layouts.shuffled(words, random.Random(seed), ".o")
    assert sorted(found) == sorted(words)
    others = [(at, word) for at, word in enumerate(words) if not word.endswith(".o")]
    assert all(found[at] == word for at, word in others)


def test_the_emulators_link_is_found_among_others():
    told = [{"output": "qemu-img", "command": "cc"}, {"output": layouts.PROGRAM, "command": LINK}]
    assert layouts.link_command(json.dumps(told)) == LINK.split()


def test_a_build_without_it_is_refused():
    with pytest.raises(LookupError, match=layouts.PROGRAM):
        layouts.link_command("[]")


@pytest.fixture
def build(tmp_path):
    """A build of a program of its own: objects, and a thin archive."""
    folder = tmp_path / "build"
    (folder / layouts.DATA).mkdir(parents=True)
    for value, name in enumerate(OBJECTS):
        (folder / f"{name}.c").write_text(FUNCTION.format(name=name, value=value))
    calls = " + ".join(f"{name}()" for name in OBJECTS)
    declared = "".join(f"int {name}(void);\n" for name in OBJECTS)
    (folder / "main.c").write_text(f"{declared}int main(void) {{ return {calls}; }}\n")
    linked, archived = ([f"{name}.o" for name in names] for names in (OBJECTS[:4], OBJECTS[4:]))
    (folder / "build.ninja").write_text(
        "rule cc\n  command = cc -c -o $out $in\n"
        "rule ar\n  command = ar rcsT $out $in\n"
        "rule c_LINKER_RSP\n  command = cc @$out.rsp\n  rspfile = $out.rsp\n"
        "  rspfile_content = -o $out $in $LINK_ARGS\n"
        + "".join(f"build {name}.o: cc {name}.c\n" for name in ("main", *OBJECTS))
        + f"build libx.a: ar {' '.join(archived)}\n"
        f"build {layouts.PROGRAM}: c_LINKER_RSP main.o {' '.join(linked)} | libx.a\n"
        "  LINK_ARGS = -Wl,--start-group libx.a -Wl,--end-group\n"
    )
    subprocess.run(["ninja", "-C", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def _order(program):
    told = subprocess.run(["nm", "-n", program], check=True, capture_output=True, text=True).stdout
    return [name for line in told.splitlines() if (name := line.split()[-1]) in OBJECTS]


def test_the_same_functions_lie_in_an_order_that_is_drawn(build, tmp_path):
    programs = [layouts.relink(build, seed, tmp_path / f"seed{seed}") for seed in (1, 2)]
    orders = [_order(program) for program in programs]
    assert orders[0] != orders[1]
    for program, order in zip(programs, orders, strict=True):
        assert sorted(order) == OBJECTS
        # It finds its firmware, and does what it did.
        assert (program.parent / layouts.DATA).samefile(build / layouts.DATA)
        assert subprocess.run([program]).returncode == sum(range(len(OBJECTS)))


def test_an_order_can_be_drawn_again(build, tmp_path):
    first, second = (layouts.relink(build, 7, tmp_path / name) for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
