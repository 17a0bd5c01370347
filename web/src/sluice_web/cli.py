# SPDX-License-Identifier: GPL-2.0-or-later
"""The sluice-web command."""

import argparse
import os
import sys
import time
from importlib.resources import files
from pathlib import Path

from sqlalchemy.exc import DatabaseError, OperationalError

from . import __version__, tokens
from . import config as c
from .certificate import Certificate
from .problems import Problem
from .store import ROLES, Store, new_password

FIRST_ADMIN = "admin"
# A failure that may pass by itself, and a failure that a person has to mend:
# sluice-web.service tries again after the first, not after the second.
FAILED_NOW, CANNOT_WORK = 1, 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="sluice-web",
        description="Serve Sluice's web page and REST API. At the first start the user"
        f" '{FIRST_ADMIN}' gets a generated password, shown once.",
        epilog="examples:\n"
        "  sluice-web --bind 0.0.0.0:8480 --tls-cert cert.pem --tls-key key.pem\n"
        "  sluice-web reset-password admin      a new password, shown once\n"
        "  sluice-web token add olga player --scope reporter --stream film\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"sluice-web {__version__}")
    top.add_argument(
        "--bind",
        default=c.DEFAULT_BIND,
        metavar="HOST:PORT",
        help="address to listen on (default %(default)s)",
    )
    top.add_argument(
        "--controller-socket",
        type=Path,
        default=c.DEFAULT_SOCKET,
        metavar="PATH",
        help="UNIX socket of sluiced (default %(default)s)",
    )
    top.add_argument(
        "--token-file",
        type=Path,
        default=c.DEFAULT_TOKEN_FILE,
        metavar="PATH",
        help="file with sluiced's API token (default %(default)s)",
    )
    _add_state_dir(top, c.DEFAULT_STATE_DIR)
    top.add_argument("--tls-cert", type=Path, metavar="PEM", help="certificate chain for HTTPS")
    top.add_argument("--tls-key", type=Path, metavar="PEM", help="its private key")
    top.add_argument(
        "--proxies",
        type=int,
        default=0,
        metavar="N",
        help="reverse proxies in front, whose X-Forwarded-For, -Proto and -Prefix are believed;"
        " 0 (the default): none",
    )
    top.add_argument(
        "--check-config",
        action="store_true",
        help="say whether the page could be served with these options, and end",
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    reset = commands.add_parser(
        "reset-password",
        help="give a user a new password",
        description="Give a user a new generated password and show it once. Their sessions end.",
    )
    reset.add_argument("user", metavar="USER")
    first = commands.add_parser(
        "first-admin",
        help="make the first admin, unless there is a user already",
        description="Make the first admin and show the generated password once. Where a user"
        " exists, nothing is changed. Says 'made' or 'unchanged' on the last line.",
        epilog="example: sluice-web first-admin --password-stdin < password-file",
    )
    first.add_argument("--user", default=FIRST_ADMIN, help="their name (default %(default)s)")
    _add_password_option(first)
    users = commands.add_parser(
        "users", help="list the users", description="List the users: name and role, one a line."
    )
    # The option may stand before or after the command.
    for command in (
        reset,
        first,
        users,
        _add_user_command(commands),
        *_add_token_commands(commands),
    ):
        _add_state_dir(command, argparse.SUPPRESS)
    return top


def _add_user_command(commands) -> argparse.ArgumentParser:
    user = commands.add_parser(
        "add-user",
        help="make a user, unless they are there already",
        description="Make a user and show the generated password once. Where the user exists,"
        " nothing is changed. Says 'made' or 'unchanged' on the last line.",
        epilog="example: sluice-web add-user olga --role operator --password-stdin < file",
    )
    user.add_argument("user", metavar="USER", help="their name")
    user.add_argument("--role", choices=ROLES, default="viewer", help="(default %(default)s)")
    _add_password_option(user)
    return user


def _add_password_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--password-stdin",
        action="store_true",
        help="take the password from the first line of standard input, and do not show it",
    )


def _add_token_commands(commands) -> list[argparse.ArgumentParser]:
    token = commands.add_parser(
        "token",
        help="make, list and revoke API tokens",
        description="API tokens: a program sends one as 'Authorization: Bearer TOKEN'.",
    )
    verbs = token.add_subparsers(dest="verb", metavar="VERB", required=True)
    scopes = "\n".join(f"  {scope:9} {says}" for scope, says in tokens.SCOPES.items())
    add = verbs.add_parser(
        "add",
        help="make a token and show it once",
        description="Make an API token. It goes to standard output, once; nobody can read it"
        f" again.\n\nscopes:\n{scopes}\n\nA token never may more than its user: for the last two"
        " that is an operator or an admin.",
        epilog="examples:\n"
        "  sluice-web token add olga backup-script                a viewer's, for"
        f" {tokens.USUAL_DAYS} days\n"
        "  sluice-web token add olga player --scope reporter --stream film --no-expiry\n"
        "  sluice-web token add olga ci --scope operator --days 7 > ci.token\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add.add_argument("user", metavar="USER", help="whose token it is")
    add.add_argument("label", metavar="LABEL", help="its name in lists and in the audit")
    add.add_argument(
        "--scope", choices=tokens.SCOPES, default="viewer", help="(default %(default)s)"
    )
    add.add_argument("--stream", metavar="NAME", help="the stream that a reporter reports of")
    ends = add.add_mutually_exclusive_group()
    ends.add_argument(
        "--days",
        type=int,
        default=tokens.USUAL_DAYS,
        metavar="N",
        help=f"days until it expires, 1 to {tokens.MOST_DAYS} (default %(default)s)",
    )
    ends.add_argument("--no-expiry", action="store_true", help="it lasts until it is revoked")
    listed = verbs.add_parser(
        "list",
        help="list the tokens",
        description="List the tokens, one a line: number, user/label, scope (and stream), end.",
    )
    remove = verbs.add_parser(
        "remove",
        help="revoke a token",
        description="Revoke a token at once.",
        epilog="example: sluice-web token remove 3",
    )
    remove.add_argument("number", type=int, metavar="NUMBER", help="from sluice-web token list")
    return [add, listed, remove]


def _add_state_dir(target: argparse.ArgumentParser, default) -> None:
    target.add_argument(
        "--state-dir",
        type=Path,
        default=default,
        metavar="PATH",
        help=f"folder for users, tokens and the session key (default {c.DEFAULT_STATE_DIR})",
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "reset-password":
            return reset_password(options.state_dir, options.user)
        if options.command in ("first-admin", "add-user"):
            return add_user(Store(options.state_dir), options)
        if options.command == "users":
            return list_users(options.state_dir)
        if options.command == "token":
            verb = {"add": add_token, "list": list_tokens, "remove": remove_token}[options.verb]
            return verb(Store(options.state_dir), options)
        config = c.Config(
            bind=options.bind,
            controller_socket=options.controller_socket,
            token_file=options.token_file,
            state_dir=options.state_dir,
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
            proxies=options.proxies,
        )
        return check(config) if options.check_config else serve(config)
    except (c.ConfigError, Problem, RuntimeError, OSError, DatabaseError) as error:
        status, said = failure(error, options.state_dir)
        print(f"sluice-web: {said}", file=sys.stderr)
        return status


def failure(error: Exception, state_dir: Path) -> tuple[int, str]:
    """The exit status and the words for an error that ended a command or the page."""
    if isinstance(error, PermissionError):
        return CANNOT_WORK, (
            f"{error.filename or state_dir}: {error.strerror}; what is in {state_dir} belongs to"
            " the user that runs the page, sluice-web: run commands as that user"
        )
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return FAILED_NOW, f"{where}{error.strerror}; check --state-dir"
    if isinstance(error, DatabaseError):
        # Locked, or a disk that is full; else it is no database at all.
        status = FAILED_NOW if isinstance(error, OperationalError) else CANNOT_WORK
        return status, (
            f"{state_dir}/web.sqlite: {error.orig}; if that stays, put back a copy, or move it"
            " away and make the first admin again"
        )
    return CANNOT_WORK, str(error)


def check(config: c.Config) -> int:
    """Say that the options are sound, and certificate and key a pair; serves nothing."""
    Certificate.of(config)
    print("sluice-web: the configuration can work")
    return 0


def serve(config: c.Config) -> int:
    """Serve until told to stop."""
    certificate = Certificate.of(config)
    if not files("sluice_web").joinpath("static/vendor/uPlot.iife.min.js").is_file():
        raise c.ConfigError(
            "the page's libraries are missing (static/vendor); in a checkout run"
            " `make web-assets`, else reinstall the package"
        )
    from .app import create_app
    from .server import CannotListen, Server, listen, run_until_told

    store = Store(config.state_dir)
    try:
        listening = listen(config.bind)
    except CannotListen as error:
        print(f"sluice-web: {error}", file=sys.stderr)
        return FAILED_NOW if error.may_pass else CANNOT_WORK
    server = Server(create_app(config, store), listening, certificate)
    if not store.has_users():
        introduce_admin(store)
    print(f"Sluice's page: {config.address}", flush=True)
    run_until_told(server)
    return 0


def introduce_admin(store: Store) -> None:
    """Make the first admin. A journal would keep the password, so it is not shown there."""
    if os.environ.get("JOURNAL_STREAM"):
        print(f"No user exists yet. Run: sluice-web reset-password {FIRST_ADMIN}", flush=True)
        return
    password = new_password()
    store.add_user(FIRST_ADMIN, "admin", password, now=time.time(), actor="first start")
    print(f"First sign-in (shown once)\n  User: {FIRST_ADMIN}\n  Password: {password}", flush=True)


def reset_password(state_dir: Path, user: str) -> int:
    """Set and show a new password; makes the first admin if there is none yet."""
    store = Store(state_dir)
    password = new_password()
    if user == FIRST_ADMIN and not store.has_users():
        store.add_user(user, "admin", password, now=time.time(), actor="reset-password")
    else:
        store.set_password(user, password, now=time.time(), actor="reset-password")
    print(f"  User: {user}\n  Password: {password}")
    return 0


def add_user(store: Store, options: argparse.Namespace) -> int:
    """Make the first admin, if there is no user yet, or a user of this name, if there is none.

    With the given or a generated password, which is shown.
    """
    given = sys.stdin.readline().rstrip("\n") if options.password_stdin else None
    first = options.command == "first-admin"
    if store.has_users() if first else store.person(options.user):
        print("unchanged")
        return 0
    password = new_password() if given is None else given
    role = "admin" if first else options.role
    store.add_user(options.user, role, password, now=time.time(), actor=options.command)
    if given is None:
        print(f"  User: {options.user}\n  Password: {password}")
    print("made")
    return 0


def list_users(state_dir: Path) -> int:
    """Print name and role of each user."""
    for user in Store(state_dir).users():
        print(f"{user['name']}\t{user['role']}")
    return 0


def add_token(store: Store, options: argparse.Namespace) -> int:
    """Make a token and print it; its terms go to standard error, so that it can be piped."""
    now = time.time()
    days = None if options.no_expiry else options.days
    terms = tokens.TokenTerms(options.scope, options.stream, tokens.expiry(days, now))
    made = store.add_token(options.user, options.label, terms, now=now, actor="token add")
    print(
        f"Token {options.user}/{options.label} ({terms.described()}), shown once:", file=sys.stderr
    )
    print(made)
    return 0


def list_tokens(store: Store, _options: argparse.Namespace) -> int:
    """Print number, name, scope and end of each token."""
    now = time.time()
    for token in store.tokens():
        scope = token["scope"] + (f":{token['stream']}" if token["stream"] else "")
        end = tokens.until(token["expires_at"])
        if token["expires_at"] is not None and token["expires_at"] <= now:
            end = f"expired, was {end}"
        print(token["id"], f"{token['user']}/{token['label']}", scope, end, sep="\t")
    return 0


def remove_token(store: Store, options: argparse.Namespace) -> int:
    """Revoke a token."""
    named = {token["id"]: f"{token['user']}/{token['label']}" for token in store.tokens()}
    store.remove_token(options.number, now=time.time(), actor="token remove")
    print(f"Token {named.get(options.number, options.number)} is revoked.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
