"""What is asked of a threshold is checked before the model is made, as it will be met after."""

import pytest
import torch

from prood.detector import Detector
from prood.errors import BadValue, UnknownName
from prood.models import ProoD, discriminator, load, save, small
from prood.studies.gating import Asked, Outliers
from prood.studies.thresholds import Threshold


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thresholds")
    torch.manual_seed(3)
    f, g = small(8, width=4).eval(), discriminator("digits", image=(1, 28, 28)).eval()
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
    save(g, folder / "g" / "model.safetensors", eps=0.1)
    save(ProoD(f, g, 1.5), folder / "joint" / "model.safetensors", eps=0.1)
    return folder


def test_what_passes_the_check_can_be_set(runs):
    wanted = Threshold("digits:validation", Asked(0.9, 0.9))
    wanted.check(runs / "g")
    found = wanted.set(runs / "joint", "cpu")
    detector = Detector.load(runs / "joint")
    assert detector.tpr == 0.9
    assert f"{detector.threshold:.6g}" in found.words
    assert 0 <= found.accuracy <= 1


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (Threshold("digits:nothing"), UnknownName),
        (Threshold("digits:validation", Asked(0.9999)), BadValue),  # too few images
        (Threshold("digits:validation", Asked(0.98, 0.95, "0.2")), BadValue),  # half of them are too few
        (Threshold("digits:validation", Asked(provable="strong"), Outliers(["faces"])), BadValue),  # a fit takes 400
        (Threshold("digits:validation", Asked(provable="2")), BadValue),
    ],
)
def test_what_cannot_be_met_is_refused_before_and_would_be_after(runs, wanted, kind):
    with pytest.raises(kind):
        wanted.check(runs / "g")
    before = (runs / "joint" / "model.safetensors").read_bytes()
    with pytest.raises(BadValue, match="joint"):
        wanted.set(runs / "joint", "cpu")
    assert (runs / "joint" / "model.safetensors").read_bytes() == before
    assert load(runs / "joint")[1].eps == 0.1
