"""Large images: what workers hand over, and what they say of damaged files."""

import pytest
import torch

from pictures import write_folder
from softprune import data
from softprune.data import decode, files
from softprune.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kept", [0.3, 0.9], ids=["header", "pixels"])
def test_corrupt_image_is_a_sentence(tmp_path, workers, kept):
    root = write_folder(tmp_path, (80, 70), train=6, suffix="jpg")
    broken = root / "train" / "class1" / "4.jpg"
    content = broken.read_bytes()
    broken.write_bytes(content[: int(kept * len(content))])
    loader = data.folder(root, size=16).train.loader(batch=3, train=True, workers=workers)
    with pytest.raises(DataError, match=r"^Cannot read the image \S*/train/class1/4\.jpg: [^\n]*[Tt]runcated[^\n]*\.$"):
        list(loader)


def test_pixels_and_normalisation(large):
    x, y = next(iter(large.val.loader(batch=5, train=False)))
    assert y.tolist() == [0, 0, 1, 1, 2]
    pixels = torch.stack([decode.Photo(large.val.listing.paths[i], 24, None).pixels() for i in range(5)])
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(x, ((pixels / 255 - mean) / std).permute(0, 3, 1, 2))
    assert torch.equal(files.MEAN, 255 * mean)
