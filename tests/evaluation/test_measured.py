"""What is measured of a run besides its evaluations."""

import numpy as np
import pytest
from PIL import Image

from prood.data import uniform_noise
from prood.evaluation import evaluate_run
from prood.evaluation.asymptotics.far import TRAJECTORIES
from prood.evaluation.robustness import measured
from prood.models import save


@pytest.mark.slow
def test_what_is_far_away_does_not_depend_on_where_the_images_lie_or_how_many_were_attacked(f, inside, tmp_path):
    np.savez(tmp_path / "in.npz", images=inside.images[:, 0].numpy(), labels=inside.labels.numpy())
    pictures = uniform_noise(TRAJECTORIES + 20, inside.shape, seed=5).images[:, 0].numpy()
    np.savez(tmp_path / "out.npz", images=pictures)
    (tmp_path / "out").mkdir()
    for number, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(tmp_path / "out" / f"{number:03d}.png")
    found = []
    for name in (f"npz:{tmp_path}/out.npz", f"folder:{tmp_path}/out"):
        save(f, tmp_path / "run" / "model.safetensors")
        options = {"inside": f"npz:{tmp_path}/in.npz", "outside": [name], "eps": [0.0], "limit": 3, "device": "cpu"}
        (one,) = evaluate_run(tmp_path / "run", attacks="fast", **options)
        found.append(measured(tmp_path / "run", one, "cpu").far)
    assert found[0] == found[1]
    assert found[0].trajectories == TRAJECTORIES
