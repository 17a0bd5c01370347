# SPDX-License-Identifier: GPL-2.0-or-later
"""Every command, against an API whose every text is an escape sequence, in every encoding.

Commands and options are those of the parser, answers have the shapes of the OpenAPI
document: a new command is tried as well.
"""

import io
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import pytest
import typer

from sluice_controller.entry.api.app import create_app
from sluice_controller.entry.cli import main as cli

# Title of the window, the screen cleared, the clipboard, another line, a C1 control, DEL, text
# from right to left.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;Y3VybA==\x07\nsluice: all is well\r\x9b31m\x7f\u202e"
HARMLESS = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*")
NUMBER = {"integer": 7, "number": 0.5, "boolean": True}
# By what the manual calls an argument or option; others get a word, or a number.
WORDS = {
    "RATE": "1MB/s",
    "RESOURCE": "net-tx",
    "--rate": "1MB/s",
    "--burst": "64KiB",
    "--reserve": "1MB/s",
    "--peak": "1MB/s",
    "--min-charge": "4KiB",
    "--window": "16KiB/20ms",
    "--may-miss": "1/10",
    "--bytes": "64KiB",
    "--packets": "100",
    "--connections": "100",
    "--burst-connections": "10",
    "--floor": "net-tx=1MB/s",
    "--file": str(Path(__file__).parents[3] / "docs" / "examples" / "state.yaml"),
}


def commands(group=typer.main.get_command(cli.app), path=()):  # noqa: B008
    """(words, click command) of each command that can be run."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


def _word(parameter):
    named = [parameter.metavar, *parameter.opts]
    word = next((WORDS[name] for name in named if name in WORDS), None)
    return word or ("7" if _is_number(parameter) else "batch")


def _is_number(parameter):
    described = getattr(parameter, "type_descriptor", None)
    if described:
        return described.annotation in (int, float, list[int], list[float])
    # Earlier typers, such as Debian 13's, leave types to click.
    return parameter.type.name.split()[0] in ("integer", "int", "float")


def lines(command):
    """What to type: the command with its arguments alone, and with each of its options."""
    given = []
    for parameter in command.params:
        if parameter.required:
            if parameter.param_type_name == "option":
                given.append(max(parameter.opts, key=len))
            given.append(_word(parameter))
    yield given
    for option in command.params:
        if option.param_type_name == "option" and option.name not in ("help", "page", "follow"):
            value = [] if option.is_flag or option.count else [_word(option)]
            yield [*given, max(option.opts, key=len), *value]


class Answers:
    """Of the API, by its own document."""

    def __init__(self):
        document = create_app(None, "t").test_client().get("/v1/openapi.json").json
        self.schemas = document["components"]["schemas"]
        self.calls = []
        for path, methods in document["paths"].items():
            pattern = re.compile("/v1" + re.sub(r"{[^}]*}", "[^/]+", path) + "$")
            for method, call in methods.items():
                if method in ("get", "put", "patch", "post", "delete"):
                    # Names before placeholders: /rules/preview is no /rules/ID.
                    self.calls.append((path.count("{"), pattern, method.upper(), call["responses"]))
        self.calls.sort(key=lambda call: call[0])

    def to(self, method, path):
        found = next(c for c in self.calls if c[2] == method and c[1].match(path))
        for status in ("200", "201"):
            if status in found[3]:
                content = found[3][status]["content"]["application/json"]
                return int(status), self.example(content["schema"])
        return 204, None

    def example(self, schema):
        if "$ref" in schema:
            return self.example(self.schemas[schema["$ref"].rsplit("/", 1)[1]])
        for part in ("allOf", "anyOf", "oneOf"):
            if part in schema:
                # Beside what is null there is the schema of what is not.
                return self.example(max(schema[part], key=lambda one: "$ref" in one))
        kind = schema.get("type")
        if kind == "array":
            return [self.example(schema["items"])] * 2
        if kind == "object" and "properties" in schema:
            return {name: self.example(one) for name, one in schema["properties"].items()}
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return {ESCAPES: self.example(schema["additionalProperties"])}
        return MEASURED if kind == "object" else NUMBER.get(kind, ESCAPES)


PHASE = {
    "stream": {"verdict": ESCAPES, "stalls": 1, "stall_seconds": 1.0, "delivered_ratio": 1.0},
    "background": {"http_bytes_per_s": 1.0, "disk_bytes_per_s": 1.0},
    "cpu_ratio": 0.5,
}
# The one answer without a schema: a nightly result, as its specification has it.
MEASURED = {
    "accelerator": {"name": ESCAPES, "reason": ESCAPES},
    "measured": {
        "phases": {ESCAPES: PHASE},
        "checks": [{"holds": False, "name": ESCAPES, "figures": ESCAPES}],
    },
}
PROBLEM = {"detail": f"agent of domain 'a' is not connected ({ESCAPES}): {ESCAPES}"}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """A real socket; `api.refuses` is what it answers instead, `api.calls` what was asked."""
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0]
            self.server.calls.append((self.command, path))
            status, body = self.server.refuses or answers.to(self.command, path)
            text = body if isinstance(body, str) else json.dumps(body)
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            if status != 204:
                self.wfile.write(text.encode())

        do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = _answer

        def address_string(self):
            return "a test"

        def log_message(self, *_arguments):
            pass

    folder = tmp_path_factory.mktemp("api")
    with ThreadingUnixStreamServer(str(folder / "socket"), Handler) as server:
        server.folder, server.refuses, server.calls = folder, None, []
        (folder / "token").write_text("t")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def run(api, monkeypatch):
    """Runs a command; (status, what the terminal gets)."""
    api.refuses = None
    api.calls.clear()
    monkeypatch.setenv("SLUICE_SOCKET", str(api.folder / "socket"))
    monkeypatch.setenv("SLUICE_TOKEN_FILE", str(api.folder / "token"))

    def run(*words, encoding="utf-8"):
        raw = io.BytesIO()
        terminal = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(sys, "argv", ["sluice", *words])
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code or 0
        terminal.flush()
        return status, raw.getvalue().decode(encoding)

    return run


def check_harmless(said):
    bad = HARMLESS.match(said).end()
    assert bad == len(said), f"{said[bad]!r} reaches the terminal: …{said[max(0, bad - 60) : bad]}"
    assert "\nsluice: all is well" not in said


@pytest.mark.parametrize("words", sorted(COMMANDS), ids=" ".join)
def test_no_answer_reaches_the_terminal_as_it_is(run, api, words):
    for number, line in enumerate(lines(COMMANDS[words])):
        status, said = run(*words, *line)
        check_harmless(said)
        # Some options do not go with others, or alone; of the answer nothing is misread.
        assert status == 0 or (status == 2 and number) or "sluice: " in said, said
        assert api.calls or number


@pytest.mark.parametrize(
    "refusal",
    [(503, PROBLEM), (502, ESCAPES), (200, ESCAPES), (500, json.dumps([ESCAPES]))],
    ids=["a problem", "no JSON", "no JSON in a success", "another JSON"],
)
@pytest.mark.parametrize("words", sorted(COMMANDS), ids=" ".join)
def test_no_refusal_reaches_the_terminal_as_it_is(run, api, words, refusal):
    api.refuses = refusal
    status, said = run(*words, *next(lines(COMMANDS[words])))
    check_harmless(said)
    assert status == 1 and said.startswith("sluice: ")


@pytest.mark.parametrize("words", sorted(COMMANDS), ids=" ".join)
def test_a_command_that_is_done_says_so_in_any_encoding(run, words):
    """One without arrows, one without even the letters of a name."""
    for encoding in ("iso-8859-1", "ascii"):
        status, said = run(*words, *next(lines(COMMANDS[words])), encoding=encoding)
        assert status == 0 or said.startswith("sluice: "), said


def test_bytes_that_are_no_text_here_are_refused_before_anything_is_done(run, api):
    for line in (
        ("class", "set", "caf\udce9"),
        ("class", "set", "batch", "--title", "caf\udce9"),
        ("rule", "list", "--domain", "caf\udce9"),
    ):
        status, said = run(*line)
        assert (status, api.calls) == (1, [])
        assert said == (
            "sluice: command line 'byte 0xe9' is not a character in the encoding of this"
            " terminal: write it in the encoding that LC_ALL, LC_CTYPE or LANG names\n"
        )
