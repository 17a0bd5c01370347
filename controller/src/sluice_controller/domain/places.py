# SPDX-License-Identifier: GPL-2.0-or-later
"""Where disks lie, as the operator names it: by the beginning of an image's path.

A disk of a network has no path. It is known as `PROTOCOL:NAME`, as `rbd:pool/image`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from .errors import BadValue
from .knobs import Name, matching

_IMAGES = r"(?:/|[a-z][a-z0-9+.-]*:)[^\x00-\x1f\x7f]{0,1023}"
_DEVICE = r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}"

_parse_characters = matching(
    _IMAGES,
    "the beginning of an image's path",
    "give an absolute path, or PROTOCOL:NAME, as 'sluice auto status' shows it",
)


def _parse_images(raw: Any, thing: str) -> str:
    text = _parse_characters(raw, thing)
    parts = text.strip("/").split("/") if text.startswith("/") and text != "/" else ()
    if any(part in ("", ".", "..") for part in parts):
        remedy = "give it without '.', '..' and '//', as the domain's XML has it"
        raise BadValue(thing, text, "is not as paths of images are", remedy)
    return text


parse_device_name = matching(
    _DEVICE,
    "a name of a device",
    "use 1 to 63 letters, digits, '-', '_', '.' and ':', and begin with a letter or digit; the"
    " name of a device of this host, as sda, means that device",
)

Images = Annotated[str, Name(_IMAGES, _parse_images, example="/srv/san1")]
DeviceName = Annotated[str | None, Name(_DEVICE, parse_device_name, optional=True, example="san1")]


def named_by(image: str | None, names: Mapping[str, str]) -> str | None:
    """The longest of these beginnings of paths under which an image lies."""
    under = [one for one in names if image is not None and _is_under(image, one)]
    return max(under, key=len, default=None)


def _is_under(image: str, beginning: str) -> bool:
    """Whole parts of a path count: /srv/a holds no image of /srv/ab."""
    rest = image[len(beginning) :]
    is_whole = not rest or beginning[-1] in "/:" or rest[0] in "/:"
    return image.startswith(beginning) and is_whole
