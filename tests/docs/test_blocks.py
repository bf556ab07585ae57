"""The reader of the documentation's blocks can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import agrees, blocks, commands

PAGE = """# Page

```python continued
print(1)
```

```text output
1
```

```console
$ rollbook envs
guess
$ echo $?
0
```
"""


def test_blocks_have_their_words_and_their_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    code, output, console = blocks(page)
    assert (code.language, code.words, code.text, code.line) == ("python", ("continued",), "print(1)\n", 4)
    assert (output.language, output.words) == ("text", ("output",))
    assert commands(console) == [("rollbook envs", "guess\n"), ("echo $?", "0\n")]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a  b\n", "a b", True),
        ("a b\n", "a c", False),
        ("a ... d\n", "a b c d", True),
        ("a ... d\n", "a b c", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("...\nc\n", "a\n ───── \nc\n", True),
        ("...\nc\n", "a\nb\n", False),
    ],
)
def test_what_a_page_shows_is_compared(shown: str, printed: str, same: bool) -> None:
    assert agrees(shown, printed) is same
