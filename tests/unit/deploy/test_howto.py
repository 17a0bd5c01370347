# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from deploy.howto import Block, Reader, blocks, without
from testbed import paths

PAGE = """\
# How

```
before any heading
```

## One

```
HOST=a
echo $HOST
```

```yaml
not: a command
```

## Two

```
ssh $HOST
```
"""


def test_blocks_stand_under_their_headings():
    assert list(blocks(PAGE)) == [
        Block("", "before any heading\n"),
        Block("One", "HOST=a\necho $HOST\n"),
        Block("Two", "ssh $HOST\n"),
    ]


def test_a_block_without_an_end_is_named():
    with pytest.raises(ValueError, match="under 'One' has no end"):
        list(blocks("## One\n\n```\nls\n"))


def test_a_variable_lives_on_in_later_blocks():
    reader = Reader(PAGE)
    assert reader.take("One") == "HOST=a\necho $HOST\n"
    assert reader.take("Two") == "HOST=a\nssh $HOST\n"
    assert reader.headings() == [""]
    with pytest.raises(KeyError, match="no block is left under 'Two'"):
        reader.take("Two")


def test_lines_left_out_must_be_there():
    assert without("make deb\nls\n", "make deb") == "ls\n"
    with pytest.raises(ValueError, match="no line begins with 'apt-get'"):
        without("ls\n", "apt-get")


def test_the_page_has_the_steps_that_the_machines_follow():
    """`make test-deploy` follows them; a renamed step should fail sooner than that."""
    reader = Reader((paths.TOP / "docs/how-to/deploy.md").read_text())
    numbered = [heading for heading in reader.headings() if heading[:1].isdigit()]
    assert [heading[:2] for heading in numbered] == ["1.", "2.", "3.", "4.", "5.", "6.", "7."]
    assert {"Upgrade", "Remove"} <= set(reader.headings())
