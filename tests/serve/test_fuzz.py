"""A few hundred of the malformed uploads that benchmarks/fuzz_serve.py sends by the thousand."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "fuzz_serve.py"
spec = importlib.util.spec_from_file_location("fuzz_serve", PATH)
fuzz_serve = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz_serve)


@pytest.mark.slow
def test_malformed_uploads_are_refused_and_nothing_breaks(service, files):
    client = service(about=None)
    statuses = Counter()
    for path, kind, body in fuzz_serve.uploads(300, seed=2):
        answered = client.post(path.replace("/prood/", "/small/"), content=body, headers={"content-type": kind})
        statuses[answered.status_code] += 1
        assert answered.status_code in (200, 400, 413, 415), (path, kind, body[:100], answered.text)
        if answered.status_code != 200:
            assert len(answered.json()["error"]) < 250
    assert statuses[400] > 100
    assert statuses[200] > 20  # some wounds do not matter, and then it answers
    assert client.picture("/v1/predict", files[0]).status_code == 200
