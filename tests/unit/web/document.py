# SPDX-License-Identifier: GPL-2.0-or-later
"""A small OpenAPI document, in the forms that the controller's has."""

from typing import Any

RATE = {"maximum": 100_000_000_000, "minimum": 1024, "type": "number"}
TEXT = {"examples": ["20MB/s"], "type": "string"}
NULL = {"type": "null"}
WHOLE = {"default": 100, "maximum": 1000, "minimum": 1, "type": "integer"}
AMOUNT = {"anyOf": [RATE, TEXT, NULL], "default": None, "x-unit": "bytes per second"}
SCHEMAS: dict[str, Any] = {
    "Limit": {"properties": {"bytes_per_second": {**AMOUNT, "description": "null: unlimited"}}},
    "Scheduling": {
        "properties": {
            "policy": {
                "default": "token-bucket",
                "description": "how it uses its limit",
                "enum": ["token-bucket", "token-leaky"],
                "type": "string",
            },
            "peak_bytes_per_second": {**AMOUNT, "x-beside": {"policy": "token-leaky"}},
            "charge": {
                "default": "all",
                "enum": ["all", "device"],
                "type": "string",
                "x-resources": ["blk-read", "blk-write"],
            },
            "window": {"anyOf": [{"$ref": "#/components/schemas/Window"}, NULL], "default": None},
        }
    },
    "Window": {
        "properties": {"period_ns": {"type": "integer", "x-unit": "nanoseconds"}, "of": WHOLE},
        "required": ["period_ns"],
    },
    "Queue": {
        "properties": {"ecn": {"default": False, "type": "boolean", "x-resources": ["net-rx"]}}
    },
    "ClassBody": {
        "properties": {
            "title": {"default": "", "examples": ["Batch"], "maxLength": 80, "type": "string"},
            "weight": {**WHOLE, "description": "its share"},
        }
    },
    "GroupBody": {
        "properties": {"resource": {"enum": ["blk", "net-tx"], "type": "string"}},
        "required": ["resource"],
    },
    "MemberBody": {"properties": {"weight": WHOLE}},
    "RuleBody": {"properties": {"match": {"$ref": "#/components/schemas/Match"}}},
    "Match": {
        "properties": {
            "exe": {
                "anyOf": [{"pattern": "^(?:.+)$", "type": "string"}, NULL],
                "default": None,
                "description": "the executable's path",
                "examples": ["/usr/bin/rsync"],
            }
        }
    },
    "StreamBody": {
        "properties": {"nominal_bytes_per_second": {"anyOf": [RATE, TEXT, NULL], "default": None}},
    },
    "Card": {
        "properties": {"dscp": {"default": "auto", "enum": ["auto", "off"], "type": "string"}}
    },
    "Auto": {
        "properties": {
            "method": {
                "default": "gate",
                "description": "how disks are held",
                "enum": ["gate", "rates"],
                "type": "string",
            },
            "floors_bytes_per_second": {"additionalProperties": {"anyOf": [RATE, TEXT]}},
        }
    },
}


def _taking(name: str, method: str = "put") -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {method: {"requestBody": {"content": {"application/json": {"schema": schema}}}}}


OF_A_CLASS = "/domains/{domain}/classes/{class}"
DOCUMENT: dict[str, Any] = {
    "paths": {
        "/status": {"get": {"summary": "Status"}},
        "/classes/{class}": _taking("ClassBody"),
        "/domains/{domain}/cards/{card}": _taking("Card"),
        f"{OF_A_CLASS}/limits/{{resource}}": _taking("Limit"),
        f"{OF_A_CLASS}/scheduling/{{resource}}": _taking("Scheduling"),
        f"{OF_A_CLASS}/queues/{{resource}}": _taking("Queue"),
        "/groups/{group}": _taking("GroupBody"),
        "/groups/{group}/members/{domain}": _taking("MemberBody"),
        "/rules": _taking("RuleBody", "post"),
        "/streams/{stream}": _taking("StreamBody"),
        "/auto": _taking("Auto"),
    },
    "components": {"schemas": SCHEMAS},
}
