"""What the first bytes of a JPEG file tell: its size, and whether every decoder makes the same of it."""

from __future__ import annotations

from dataclasses import dataclass

_START, _END = b"\xff\xd8", b"\xff\xd9"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers that begin a frame
_BASELINE = 0xC0
_HUFFMAN = frozenset((_BASELINE, 0xC1, 0xC2))  # the others: extended, progressive
_ADOBE = 0xEE
_TAIL = 64
"""A whole file ends within so many bytes behind its end marker; one without it was cut off."""


@dataclass(frozen=True)
class Jpeg:
    """``plain``: complete, 8 bits, and YCbCr with colour sampled as usual. Others are left to Pillow, which knows
    CMYK, arithmetic coding and the rest, or says what is wrong. ``baseline``: plain and not progressive."""

    width: int
    height: int
    plain: bool
    baseline: bool


def header(content: bytes) -> Jpeg | None:
    """None for what is no JPEG file, or a damaged one.

    >>> header(b"GIF89a") is None
    True
    """
    if not content.startswith(_START):
        return None
    at, adobe = len(_START), 1
    while at + 4 <= len(content):
        if content[at] != 0xFF:
            return None
        marker = content[at + 1]
        if marker == 0xFF:  # a byte of padding
            at += 1
            continue
        length = int.from_bytes(content[at + 2 : at + 4], "big")
        segment = content[at + 4 : at + 2 + length]
        if marker in _FRAMES:
            return _frame(marker, segment, adobe, complete=_END in content[-_TAIL:])
        if marker == _ADOBE and segment.startswith(b"Adobe") and len(segment) >= 12:
            adobe = segment[11]
        at += 2 + length
    return None


def _frame(marker: int, segment: bytes, adobe: int, complete: bool) -> Jpeg | None:
    if len(segment) < 6:
        return None
    bits, channels = segment[0], segment[5]
    height, width = (int.from_bytes(segment[i : i + 2], "big") for i in (1, 3))
    names, sampling = segment[6::3], list(segment[7::3])
    usual = len(sampling) == channels == 3 and sampling[1:] == [0x11, 0x11] and sampling[0] in (0x11, 0x12, 0x21, 0x22)
    colours = adobe == 1 and names != b"RGB"
    whole = complete and width > 0 and height > 0
    plain = whole and marker in _HUFFMAN and bits == 8 and usual and colours
    return Jpeg(width, height, plain, plain and marker == _BASELINE)
