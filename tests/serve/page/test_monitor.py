"""The row about the monitor: there where the model has a calibration, and in the right words."""

import torch

from prood.detector import Detector

HIDDEN = "document.querySelector('#monitor').hidden"


def test_without_a_calibration_there_is_no_row(page, files):
    page.use(files["noise"])
    assert page.value(HIDDEN) is True


def test_what_arrives_is_said_and_an_alarm_is_red(tab, serve, detector, files):
    calibrated = Detector(detector.model)
    calibrated.calibrate(torch.rand(100, 1, 28, 28, generator=torch.Generator().manual_seed(0)), accept=0.9, level=0.8)
    service = serve(calibrated)
    assert service.get("v1/monitor")
    tab.open(service.url)
    tab.until(f"!({HIDDEN})")
    assert "(false alarms, ever: at most 1%)" in tab.text("#monitor")
    tab.until("document.querySelector('#main').ariaBusy === 'false'")
    assert service.service.monitor.seen == 0, "examples and their curves are no arrivals"
    tab.use(files["noise"])
    assert service.service.monitor.seen == 1, "a picture is one, whatever is proved about it"
    for _ in range(40):
        service.get("v1/predict", files["noise"].read_bytes())
    tab.open(service.url)
    tab.until("document.querySelector('#monitor').textContent.startsWith('Alarm: ')")
    assert tab.value("document.querySelector('#monitor').classList.contains('problem')") is True
