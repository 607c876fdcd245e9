"""deploy/quickstart.sh as a user runs it: results, refusals, interruption, a killed owner.

Run through ctest, or: /usr/bin/python3 -m pytest quickstart_test.py --build build/dev
"""

import json
import os
import pathlib
import signal
import time

import pytest

# A uniform guess over the text's 155 characters: what an untrained model must be near.
UNTRAINED_LOSS = 5.04


def segments():
    return set(pathlib.Path("/dev/shm").glob("vader_segment.*"))


@pytest.mark.parametrize("channel", ["grpc", "mpi"])
def test_trains_with_both_optimizers_and_compares(quickstart, channel):
    code, output = quickstart.run("--steps", "12", "--channel", channel)
    assert code == 0, output
    assert "validation loss, nats per character, at equal steps" in output
    assert "final validation loss" in output
    report = json.loads((quickstart.out / "report.json").read_text(encoding="utf-8"))
    for optimizer in ("adamw", "dmuond"):
        steps, losses, _ = zip(*report[optimizer]["validation"])
        assert steps == tuple(range(13))
        assert losses[0] == pytest.approx(UNTRAINED_LOSS, abs=0.4)
        assert losses[-1] < losses[0] - 1
        assert report[optimizer]["settings"]["parameters"] >= 1_000_000
    # The same model and batches: before the first update the losses are equal.
    assert report["adamw"]["validation"][0][1] == report["dmuond"]["validation"][0][1]
    assert report["adamw"]["validation"][-1][1] != report["dmuond"]["validation"][-1][1]
    assert (quickstart.out / "loss.png").read_bytes().startswith(b"\x89PNG")
    quickstart.assert_nothing_left()


def test_loss_does_not_depend_on_owners_or_trainers(quickstart, tmp_path):
    final = {}
    for owners, trainers in ((1, 1), (2, 3)):
        quickstart.out = tmp_path / f"{owners}-{trainers}"
        code, output = quickstart.run("--steps", "3", "--owners", str(owners),
                                      "--trainers", str(trainers))
        assert code == 0, output
        report = json.loads((quickstart.out / "report.json").read_text(encoding="utf-8"))
        final[trainers] = [loss for _, loss, _ in report["dmuond"]["validation"]]
    # Equal but for the rounding of a mean over three shards instead of one.
    assert final[1] == pytest.approx(final[3], abs=2e-3)


@pytest.mark.parametrize("options, cause", [
    (["--steps", "0"], "--steps '0' is not a positive number"),
    (["--owners", "two"], "--owners 'two' is not a positive number"),
    (["--channel", "tcp"], "--channel 'tcp': choose grpc or mpi"),
    (["--trainers", "5"], "--trainers 5: 24 windows do not divide evenly"),
    (["--speed", "9"], "unknown option '--speed'"),
    (["--steps"], "--steps needs a value"),
])
def test_refuses_bad_options(quickstart, options, cause):
    code, output = quickstart.run(*options)
    assert code == 1
    assert f"quickstart.sh: {cause}" in output


@pytest.mark.parametrize("number, whole_group", [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_leaves_nothing_when_interrupted(quickstart, number, whole_group):
    before = segments()
    quickstart.start("--steps", "5000")
    quickstart.wait_for_training()
    assert any(words[0].endswith("bin/dmuond") for words in quickstart.processes().values())
    if whole_group:  # as a terminal does
        os.killpg(quickstart.process.pid, number)
    else:
        quickstart.process.send_signal(number)
    code, _ = quickstart.finish(30)
    assert code == 128 + number
    quickstart.assert_nothing_left()
    assert segments() <= before


@pytest.mark.parametrize("channel", ["grpc", "mpi"])
def test_fails_when_an_owner_is_killed(quickstart, channel):
    quickstart.start("--steps", "5000", "--channel", channel)
    quickstart.wait_for_training()
    owner = next(pid for pid, words in quickstart.processes().items()
                 if words[0].endswith("bin/dmuond"))
    os.kill(owner, signal.SIGKILL)
    killed = time.monotonic()
    code, output = quickstart.finish(40)
    assert code == 1
    assert time.monotonic() - killed < 30
    assert "quickstart: " in output
    quickstart.assert_nothing_left()


def test_fails_when_a_trainer_is_killed(quickstart):
    quickstart.start("--steps", "5000")
    quickstart.wait_for_training()
    trainer = next(pid for pid, words in quickstart.processes().items()
                   if words[1:2] and words[1].endswith("train.py") and "1" == words[
                       words.index("--trainer") + 1])
    os.kill(trainer, signal.SIGKILL)
    code, output = quickstart.finish(40)
    assert code == 1
    assert "trainer-1 was killed by signal 9" in output
    quickstart.assert_nothing_left()
