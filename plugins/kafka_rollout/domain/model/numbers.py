"""Numbers in the names and contents of files."""

from __future__ import annotations

MOST_INT32, MOST_INT64 = 2**31 - 1, 2**63 - 1


def parse_number(text: str, most: int = MOST_INT64) -> int | None:
    """Return the number of a text with the digits 0 to 9; None for any other text, or above `most`.

    int() also accepts digits of other scripts, and raises ValueError at 4,300 digits.
    """
    if not (text.isascii() and text.isdigit() and len(text.lstrip("0")) <= len(str(most))):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None
