"""Formulas as MathML, written when the site is built: browsers draw it without a script or a font to fetch."""

import html
import re

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BAR = re.compile(r'(<mo(?: stretchy="false")?)>(?=&#x0(?:007C|2016);)')  # of |x| and ‖x‖: no operators, so no space
_DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    content = _DISPLAY.sub(lambda found: f'<div class="formula">{_mathml(found[1], "block")}</div>', content)
    return _INLINE.sub(lambda found: _mathml(found[1], "inline"), content)


def _mathml(escaped: str, display: str) -> str:
    tex = html.unescape(escaped).strip()
    mathml = str(convert(tex, display=display))
    if unknown := re.search(r"\\[A-Za-z]+", mathml):
        raise ValueError(f"Cannot write {unknown[0]} of the formula {tex!r} as MathML. Use another TeX command.")
    return _BAR.sub(r'\1 lspace="0" rspace="0">', mathml)
