import numpy as np
import pytest


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A recipe of a few steps on images of our own: bright squares against dark noise."""
    folder = tmp_path_factory.mktemp("tiny")
    generator = np.random.default_rng(0)
    inside = generator.integers(0, 60, (60, 28, 28), dtype=np.uint8)
    labels = np.arange(60) % 3
    for image, label in zip(inside, labels, strict=True):
        image[4 + 6 * label : 12 + 6 * label, 8:20] = 250
    np.savez(folder / "in.npz", images=inside, labels=labels)
    np.savez(folder / "out.npz", images=generator.integers(0, 256, (60, 28, 28), dtype=np.uint8))
    methods = "".join(f"[train.{name}]\nepochs = 1\nbatch = 20\n" for name in ("plain", "oe", "discriminator", "prood"))
    (folder / "tiny.toml").write_text(
        f'[data]\ninside = "npz:{folder}/in.npz"\noutside = "npz:{folder}/out.npz"\n'
        f'[networks.classifier]\nname = "small"\nwidth = 4\n[networks.discriminator]\nsize = "digits"\n{methods}'
    )
    return folder / "tiny.toml"
