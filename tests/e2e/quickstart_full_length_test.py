"""The quickstart at its full length: Muon must beat the tuned AdamW at equal steps."""

import json


def test_muon_beats_adamw_at_equal_steps(quickstart):
    code, output = quickstart.run(seconds=600)
    assert code == 0, output
    report = json.loads((quickstart.out / "report.json").read_text(encoding="utf-8"))
    assert report["adamw"]["settings"]["steps"] == report["dmuond"]["settings"]["steps"] == 300
    assert report["dmuond"]["final_validation_loss"] < report["adamw"]["final_validation_loss"]
    step, _ = report["muon_reaches_adamw_final_at"]
    assert step < 300
    quickstart.assert_nothing_left()
