import pytest
import torch
from torch import nn

from prood.data import ImageSet, uniform_noise
from prood.evaluation import auc, evaluate
from prood.models import ProoD, discriminator, small


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    f, g = small(4, width=4).eval(), discriminator("digits", image=(1, 28, 28)).eval()
    inside = uniform_noise(30, (1, 28, 28), seed=1)
    labels = torch.arange(30) % 4
    inside = ImageSet("inside", inside.images, labels, ("a", "b", "c", "d"))
    outside = {"dark": ImageSet("dark", inside.images // 3), "noise": uniform_noise(20, (1, 28, 28), seed=2)}
    return f, g, inside, outside


def test_batches_do_not_change_the_result(parts):
    f, g, inside, outside = parts
    model = ProoD(f, g, 1.0)
    whole = evaluate(model, inside=inside, outside=outside, eps=0.02, batch=100)
    pieces = evaluate(model, inside=inside, outside=outside, eps=0.02, batch=7)
    assert whole["accuracy"] == pieces["accuracy"]
    for name in outside:
        assert whole["out"][name] == pytest.approx(pieces["out"][name], abs=0.01)


def test_gauc_is_zero_without_a_certificate_and_at_most_auc_with_one(parts):
    f, g, inside, outside = parts
    plain = evaluate(f, inside=inside, outside=outside, eps=0.0)
    assert all(values["gauc"] == 0 for values in plain["out"].values())
    for model in (g, ProoD(f, g, 2.0)):
        for eps in (0.0, 0.01, 0.1):
            for values in evaluate(model, inside=inside, outside=outside, eps=eps)["out"].values():
                assert values["gauc"] <= values["auc"]


def test_a_discriminators_auc_is_that_of_g_and_it_has_no_accuracy(parts):
    _, g, inside, outside = parts
    result = evaluate(g, inside=inside, outside=outside, eps=0.01)
    with torch.no_grad():
        expected = auc(g(inside.floats()), g(outside["dark"].floats()))
    assert result["out"]["dark"]["auc"] == pytest.approx(expected, abs=1e-9)
    assert result["accuracy"] is None


def test_the_joint_model_has_the_accuracy_of_its_classifier(parts):
    f, g, inside, outside = parts
    # Far below zero every class of the joint model has almost the same probability, but their order stays.
    nn.init.constant_(g.last.bias, -500.0)
    alone = evaluate(f, inside=inside, outside=outside, eps=0.01)
    assert evaluate(ProoD(f, g), inside=inside, outside=outside, eps=0.01)["accuracy"] == alone["accuracy"]
    nn.init.constant_(g.last.bias, 3.0)
