"""Headers of JPEG files against Pillow, and which of them any decoder reads alike."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pictures import picture
from softprune.data.jpeg import Jpeg, header


def jpeg(image, **options):
    image.save(file := BytesIO(), "JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "options", [{}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True}, {"exif": b"x" * 9}]
)
@pytest.mark.parametrize(("width", "height"), [(40, 30), (1, 1), (17, 900)])
def test_usual_files(width, height, options):
    assert header(jpeg(picture(width, height), **options)) == Jpeg(width, height, True, "progressive" not in options)


def test_a_picture_inside_a_picture_is_not_meant():
    thumbnail = jpeg(picture(8, 8))
    outer = jpeg(picture(40, 30))
    segment = b"\xff\xe1" + (2 + len(thumbnail)).to_bytes(2, "big") + thumbnail
    assert header(outer[:2] + segment + outer[2:]) == Jpeg(40, 30, True, True)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_colours_are_for_pillow(mode):
    assert header(jpeg(picture(40, 30, mode))) == Jpeg(40, 30, False, False)


def test_colours_that_are_not_transformed_are_for_pillow():
    assert header(jpeg(picture(40, 30), keep_rgb=True)) == Jpeg(40, 30, False, False)


def test_rare_sampling_is_for_pillow():
    content = jpeg(picture(40, 30), subsampling=2)
    frame = content.index(b"\xff\xc0")
    assert content[frame + 11] == 0x22
    rare = content[: frame + 11] + b"\x41" + content[frame + 12 :]
    assert header(rare) == Jpeg(40, 30, False, False)


@pytest.mark.parametrize("kept", [0.5, 0.9, -1, -2])
def test_what_was_cut_off_is_for_pillow(kept):
    content = jpeg(picture(400, 300))
    found = header(content[: kept if kept < 0 else int(kept * len(content))])
    assert found == Jpeg(400, 300, False, False)


def test_what_follows_the_end_does_not_matter():
    assert header(jpeg(picture(40, 30)) + b"\0" * 20) == Jpeg(40, 30, True, True)


@given(st.data())
def test_damage_never_raises(data):
    content = bytearray(jpeg(picture(40, 30)))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    found = header(bytes(content[: data.draw(st.integers(0, len(content)))]))
    assert found is None or (found.width > 0 and found.height > 0)
