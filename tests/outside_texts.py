"""Texts that a stranger would choose for a group's name, and a strategy that makes more of them."""

from __future__ import annotations

from hypothesis import strategies as st

MARKUP = "".join(chr(code) for code in range(32, 127) if not chr(code).isalnum())
HOSTILE = (
    "</bdi><script>alert(1)</script>",
    "[approved](https://evil.example/?x) ![](//evil.example/a.png)",
    "javascript:alert(1) <javascript:alert(1)> www.evil.example root@evil.example",
    "safe\u202egnp.exe\u2066\u200b\ufeff",
    "\x1b[2J\x1b[31mgone\x07\x9b31m",
    "line\r\n[blocker] FORGED: nothing is wrong\x00",
    "&#x202e;&lt;b&gt;",
    "1) `a` ``b`` ~~~ | c | __d__ *e* \\",
    "- # > + = text",
    "e" + "\u0301" * 40,
    "\U000e0041\U000e0042 \u3164 \u2028 \ud800",
    "[bold red]x[/] [link=https://evil.example]y[/link] :warning:",
)


def outside_texts() -> st.SearchStrategy[str]:
    """Any text, texts of markup and invisible characters, and the hostile ones alone and joined."""
    hostile = st.sampled_from(HOSTILE)
    return st.one_of(
        st.text(max_size=80),
        st.text(alphabet=MARKUP + "ab1 \u202e\x1b\n", max_size=60),
        hostile,
        st.tuples(hostile, st.text(max_size=20), hostile).map(" ".join),
    )
