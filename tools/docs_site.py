"""python -m tools.docs_site: copies all pages into .site/pages, from which the site is built.

The README is the first page. Pages outside of docs/ get a place in the site, and links between them are rewritten. A
link to a source file becomes text, because the site has no sources.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / ".site" / "pages"
# Pages outside of docs/ → their place in the site.
OUTSIDE = {
    "README.md": "index.md",
    **{
        name: name
        for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "consumer/README.md")
    },
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()#\s]*)(#[^()\s]*)?\)")
_PICTURE = re.compile(r'( src| srcset)="([^":]+)"')  # GitHub shows one for each color scheme by <picture>


def main() -> None:
    shutil.rmtree(PAGES.parent, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", PAGES / "images")
    inside = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    for source in (*OUTSIDE, *inside):
        _write(_place(source), rewrite((ROOT / source).read_text(encoding="utf-8"), source))
    _write("decisions/index.md", _decisions())


def rewrite(text: str, source: str) -> str:
    """Return a page with links of the site. `source`: path of the page below the checkout."""
    text = _PICTURE.sub(lambda found: f'{found[1]}="{_relative(_target(found[2], source), source)}"', text)
    return _LINK.sub(lambda link: _rewrite_link(link, source), text)


def _rewrite_link(link: re.Match[str], source: str) -> str:
    mark, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    if not target or re.match("[a-z]+:", target):
        return link[0]
    place = _target(target, source)
    if not place.endswith((".md", ".png")):
        return text
    return f"{mark}[{text}]({_relative(place, source)}{anchor})"


def _target(target: str, source: str) -> str:
    """Return where the target of a page's link is in the site."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    return "decisions/index.md" if path == "docs/decisions" else _place(path)


def _relative(place: str, source: str) -> str:
    return posixpath.relpath(place, posixpath.dirname(_place(source)) or ".")


def _place(source: str) -> str:
    """Return where a file is in the site; empty for one that is not there."""
    return OUTSIDE.get(source) or (source.removeprefix("docs/") if source.startswith("docs/") else "")


def _decisions() -> str:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    lines = []
    for path in pages:
        title, *decisions = re.findall("^#+ (.+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        lines += [f"- [{title}]({path.name})", *(f"    - {decision}" for decision in decisions)]
    return "\n".join(["# Decisions", "", "Decisions that a later change could undo, by subject.", "", *lines, ""])


def _write(place: str, text: str) -> None:
    path = PAGES / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
