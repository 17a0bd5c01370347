# SPDX-License-Identifier: GPL-2.0-or-later
"""Members of request bodies: their type for the document, their value untouched.

The domain validates values, so that API and CLI refuse in the same words.
"""

from __future__ import annotations

from typing import Any

from marshmallow import RAISE, Schema, fields


class Untouched:
    """Documents a type; the domain checks the value."""

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> Any:
        return value


class Text(Untouched, fields.String):
    pass


class Number(Untouched, fields.Float):
    pass


class Whole(Untouched, fields.Integer):
    pass


class Flag(Untouched, fields.Boolean):
    pass


class Integers(Untouched, fields.List):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(fields.Integer(), **kwargs)


class Body(Schema):
    class Meta:
        unknown = RAISE


class Match(Untouched, fields.Dict):
    """{exe, cmdline, user, unit, cgroup}: some of them"""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(keys=fields.String(), values=fields.String(), **kwargs)


class Numbers(Untouched, fields.Dict):
    """{name: number}"""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(keys=fields.String(), values=fields.Float(), **kwargs)


class Object(Untouched, fields.Dict):
    """{name: anything}; the domain knows what"""


class Objects(Untouched, fields.List):
    """[anything]; the domain knows what"""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(fields.Dict(), **kwargs)
