# SPDX-License-Identifier: GPL-2.0-or-later
"""A picture of a page beside the stored one.

Versions of Chromium smooth letters and lines in different ways, and a box may come to
another pixel. So pictures are compared as by a person who steps back: in blocks of
``BLOCK`` pixels, by the mean colour of each. Measured on three pages, in levels of 255,
the largest difference of a block (and how many blocks were beyond ``LEVELS``):

    stored and read again                                    8 (0)
    letters smoothed anew: drawn at twice the size          13 (0)
    letters without hints, so that they are set elsewhere   13 (0), 2 px higher
    heads of the process table as flexible boxes           102 (741), 138 px higher
    one class in another colour                            111 (25)
    heads of a table in the middle of their columns         26 (11)
    bars without their grey ground                          17 (53)
    no lines between rows                                   40 (249), 16 px lower

A thin frame around a link, or a few grey words in black, is too little to be noticed.
"""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageChops

# Stored pictures are this many times smaller; blocks are a multiple of that.
SHRUNK = 2
BLOCK = 16
# By so many levels of 255 may the mean of a block differ, and a page be higher or lower.
LEVELS = 16
HEIGHT_PX = 4


@dataclass(frozen=True)
class Difference:
    """What differs: blocks beyond the tolerance, the largest difference in levels, heights."""

    blocks: int
    levels: int
    heights_px: tuple[int, int]
    picture: Image.Image

    @property
    def is_within_tolerance(self) -> bool:
        was, is_now = self.heights_px
        return not self.blocks and abs(is_now - was) <= HEIGHT_PX

    def __str__(self) -> str:
        was, is_now = self.heights_px
        height = "" if was == is_now else f"it was {was} px high and is {is_now}; "
        return (
            f"{height}{self.blocks} blocks of {BLOCK} px differ by more than {LEVELS} of 255"
            f" levels; the largest difference is {self.levels}"
        )


def shrunk(screenshot: bytes) -> Image.Image:
    """A screenshot as it is stored and compared."""
    return Image.open(BytesIO(screenshot)).convert("RGB").reduce(SHRUNK)


def save(picture: Image.Image, path: Path) -> None:
    """Small, and with letters that can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, quality=75, method=6)


def compare(stored: Image.Image, actual: Image.Image) -> Difference:
    """Both as ``shrunk`` gave them; of unlike heights, the part that both have."""
    size = min(stored.width, actual.width), min(stored.height, actual.height)
    of_block = BLOCK // SHRUNK
    one, other = (
        picture.crop((0, 0, *size)).reduce(of_block) for picture in (stored.convert("RGB"), actual)
    )
    apart = ImageChops.difference(one, other)
    red, green, blue = apart.split()
    most = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    beyond = most.point(lambda level: 255 if level > LEVELS else 0)
    marked = Image.blend(actual.crop((0, 0, *size)), Image.new("RGB", size, "white"), 0.7)
    marked.paste((220, 0, 60), mask=beyond.resize(size, Image.Resampling.NEAREST))
    heights = stored.height * SHRUNK, actual.height * SHRUNK
    return Difference(beyond.histogram()[255], most.getextrema()[1], heights, marked)
