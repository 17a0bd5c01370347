#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Link the emulator of a plain build with QEMU's generic device fuzzer.

A build of its own has the fuzzer and the sanitizers (`make qemu-asan`). For its stored
inputs the objects of the plain build do: the fuzzer takes the place of the main
program, and two objects are compiled anew, so that it hears of the device's reads of
guest memory and can fill that memory. fuzz-replay.c takes libFuzzer's place.

usage: fuzz_link.py BUILD OUTPUT        compiled with the folder OUTPUT.o
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

PROGRAM = "qemu-system-x86_64"
MAIN = "qemu-system-x86_64.p/system_main.c.o"
# The reads of guest memory: mapped or copied, and through a ring's cache.
HEARD = ("../system/physmem.c", "../hw/virtio/virtio.c")
FUZZER = [f"../tests/qtest/fuzz/{name}.c" for name in ("fuzz", "generic_fuzz", "qtest_wrappers")]
FUZZER += ["../tests/sluice/channel-fuzz.c"]
# Memory wherever a device looks for some.
FUZZER += ["../hw/mem/sparse-mem.c"]
# Made with the qtests.
LIBQOS = "tests/qtest/libqos/libqos.a.p"
WRAPPED = [f"{way}{size}" for way in ("in", "out") for size in "bwl"]
WRAPPED += [f"{way}{size}" for way in ("read", "write") for size in "bwlq"]
WRAPPED += ["memread", "bufread", "memwrite", "bufwrite", "memset"]
REPLAY = Path(__file__).with_name("fuzz-replay.c")
# Before QEMU's own, which says that there is no fuzzing.
CONFIGURATION = '#include_next "config-host.h"\n#undef CONFIG_FUZZ\n#define CONFIG_FUZZ\n'


def told(build: Path, *command: str) -> str:
    return subprocess.run(command, cwd=build, check=True, stdout=subprocess.PIPE, text=True).stdout


def without_output(command: str) -> list[str]:
    """Return a compiler's command without its source, its output and its dependencies."""
    words = shlex.split(command)
    for option in ("-o", "-c", "-MF", "-MQ"):
        at = words.index(option)
        del words[at : at + 2]
    words.remove("-MD")
    return words


def compile_objects(build: Path, folder: Path) -> dict[str, Path]:
    """Compile the objects that differ. Returns {the plain build's object, or a source: the object}.

    Raises LookupError if the build knows no such source, CalledProcessError if one does
    not compile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config-host.h").write_text(CONFIGURATION)
    known = {
        each["file"]: each for each in json.loads((build / "compile_commands.json").read_text())
    }
    if missing := [source for source in HEARD if source not in known]:
        raise LookupError(f"{build} does not tell how {missing[0]} is compiled; build it again")
    # Compiled for the machine, as the fuzzer is.
    of_machine = known[HEARD[0]]["command"]
    work = [(known[s]["output"], s, known[s]["command"]) for s in HEARD]
    work += [(source, source, of_machine) for source in (*FUZZER, str(REPLAY))]
    found = {}
    for name, source, command in work:
        compiler, *options = without_output(command)
        # With ccache before it, if QEMU was configured so.
        at = next(i for i, word in enumerate(options) if word.startswith("-"))
        words = [compiler, *options[:at], "-iquote", str(folder), *options[at:]]
        found[name] = folder / f"{Path(source).name}.o"
        told(build, *words, "-c", source, "-o", str(found[name]))
    return found


def link(build: Path, objects: dict[str, Path], output: Path) -> None:
    """Link the emulator with them. Raises LookupError and CalledProcessError."""
    links = json.loads(told(build, "ninja", "-t", "compdb", "-x", "c_LINKER", "c_LINKER_RSP"))
    found = [step["command"] for step in links if step["output"] == PROGRAM]
    if not found:
        raise LookupError(f"{build} does not tell how {PROGRAM} is linked; build it again")
    words = shlex.split(found[0])
    replaced = [str(objects.pop(word, word)) for word in words if word != MAIN]
    if len(replaced) == len(words):
        raise LookupError(f"{MAIN} is no part of {PROGRAM}; see {__file__}")
    if lost := set(objects) - {*FUZZER, str(REPLAY)}:
        raise LookupError(f"{lost} are no part of {PROGRAM}; see {__file__}")
    replaced[replaced.index("-o") + 1] = str(output)
    wraps = [f"-Wl,-wrap,qtest_{name}" for name in WRAPPED]
    libqos = [str(each) for each in sorted((build / LIBQOS).glob("*.o"))]
    if not libqos:
        raise LookupError(f"{build / LIBQOS} has no objects; make qtests builds them")
    told(build, *replaced, *map(str, objects.values()), *libqos, *wraps)


def main(build: Path, output: Path) -> int:
    build = build.resolve()
    try:
        objects = compile_objects(build, output.with_suffix(".o").absolute())
        link(build, objects, output.absolute())
    except LookupError as problem:
        print(f"error: {problem.args[0]}", file=sys.stderr)
    except subprocess.CalledProcessError as problem:
        print(f"error: {shlex.join(problem.cmd)[-300:]} failed; see above", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
