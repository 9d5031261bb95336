"""Numbers that stand as text in the names and contents of files."""

from __future__ import annotations

MOST_INT32, MOST_INT64 = 2**31 - 1, 2**63 - 1


def parse_number(text: str, most: int = MOST_INT64) -> int | None:
    """The number that decimal digits 0 to 9 say; None if they are anything else, or more than `most`.

    int() takes digits of other scripts too, and raises ValueError at 4,300 digits.
    """
    if not (text.isascii() and text.isdigit() and len(text.lstrip("0")) <= len(str(most))):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None
