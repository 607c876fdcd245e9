"""dmuonctl tune: what it measures, keeps and refuses."""

import json
import os
import pty
import signal
import subprocess
import time

from replay_support import DMUONCTL, dmuonctl

SPEC = {"parameters": [
    {"name": "a", "shape": [32, 48]}, {"name": "b", "shape": [32, 48]},
    {"name": "c", "shape": [32, 48]}, {"name": "d", "shape": [96, 32],
                                       "view": {"split_rows": [32, 32, 32]}},
    {"name": "bias", "shape": [32]}]}


def write_spec(tmp_path, spec=SPEC):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec))
    return path


def tune(tmp_path, *more, threads=2):
    return dmuonctl("tune", "--spec", write_spec(tmp_path), "--cache", tmp_path / "cache.json",
                    "--threads", threads, *more)


def entry_of(tmp_path):
    root = json.loads((tmp_path / "cache.json").read_text())
    assert root["format"] == "dmuon-tuning-1"
    (key, entry), = root["entries"].items()
    assert entry["device"]["name"] in key and entry["device"]["libraries"] in key
    return entry


def cases_of(entry):
    return [(r["rows"], r["cols"], r["batch"]) for r in entry["records"]]


def test_measures_every_batch_an_owner_can_have(tmp_path):
    done = tune(tmp_path)
    assert done.returncode == 0, done.stderr
    entry = entry_of(tmp_path)
    assert cases_of(entry) == [(32, 48, 1), (32, 48, 2), (32, 48, 3),
                               (32, 32, 1), (32, 32, 2), (32, 32, 3)]
    assert entry["device"]["threads"] == 2 and entry["device"]["kind"] == "cpu"
    assert entry["elementwise_bytes_per_s"] > 1e8
    for record in entry["records"]:
        assert record["iterations"] == 5 and record["median_s"] > 0
        assert record["precision"] in ("fp32", "bf16")
    assert "discarded" not in done.stderr


def test_table_and_plain_progress(tmp_path):
    done = tune(tmp_path, "--batches", "2")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["shape", "batch", "numerics", "ms", "gain", "choice"]
    assert lines[1].split()[:2] == ["32x48", "2"] and "x" in lines[1].split()[5]
    assert len(lines) == 4  # two shapes, and where it is
    progress = done.stderr.splitlines()
    assert [line.split()[0] for line in progress] == ["1/3", "2/3", "3/3"]
    assert "\r" not in done.stderr


def test_bar_on_a_terminal(tmp_path):
    ours, theirs = pty.openpty()
    arguments = [DMUONCTL, "tune", "--spec", write_spec(tmp_path), "--cache",
                 tmp_path / "cache.json", "--threads", "1", "--batches", "1"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # the other side is closed
        pass
    assert process.wait() == 0
    os.close(ours)
    assert b"\r" in seen and b"[####" in seen and b"3/3" in seen


def test_owners_share_the_matrices(tmp_path):
    done = tune(tmp_path, "--owners", 3)
    assert done.returncode == 0, done.stderr
    assert cases_of(entry_of(tmp_path)) == [(32, 48, 1), (32, 32, 1)]


def test_known_records_are_kept(tmp_path):
    assert tune(tmp_path, "--batches", "1").returncode == 0
    before = entry_of(tmp_path)
    done = tune(tmp_path, "--batches", "1,2")
    assert done.returncode == 0, done.stderr
    after = entry_of(tmp_path)
    assert after["elementwise_bytes_per_s"] == before["elementwise_bytes_per_s"]
    for record in before["records"]:
        assert record in after["records"]
    assert len(after["records"]) == 4
    gains = {tuple(line.split()[:2]): line for line in done.stdout.splitlines()[1:5]}
    assert "kept" in gains["32x48", "1"] and "kept" not in gains["32x48", "2"]


def test_again_measures_everything(tmp_path):
    assert tune(tmp_path, "--batches", "1").returncode == 0
    path = tmp_path / "cache.json"
    root = json.loads(path.read_text())
    (entry,) = root["entries"].values()
    for record in entry["records"]:
        record["median_s"] = 1000.0
    path.write_text(json.dumps(root))
    done = tune(tmp_path, "--batches", "1", "--again")
    assert done.returncode == 0 and "kept" not in done.stdout + done.stderr
    assert all(record["median_s"] < 100 for record in entry_of(tmp_path)["records"])
    assert len(entry_of(tmp_path)["records"]) == 2


def test_killed_midway_it_goes_on(tmp_path):
    path = tmp_path / "cache.json"
    arguments = [DMUONCTL, "tune", "--spec", write_spec(tmp_path), "--cache", path,
                 "--threads", "2"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    first = entry_of(tmp_path)
    assert 1 <= len(first["records"]) < 6, "it was to be killed midway"
    done = tune(tmp_path)
    assert done.returncode == 0, done.stderr
    second = entry_of(tmp_path)
    assert second["records"][:len(first["records"])] == first["records"]
    assert len(second["records"]) == 6
    assert done.stdout.count("kept") == len(first["records"])


def expect_refused(done, *words):
    assert done.returncode == 2, done
    assert len(done.stderr.splitlines()) == 1 and not done.stdout
    for word in words:
        assert word in done.stderr


def test_refusals(tmp_path):
    expect_refused(tune(tmp_path, "--device", "tpu"), "--device", "tpu")
    expect_refused(tune(tmp_path, "--device", "cuda:x"), "cuda:x")
    expect_refused(tune(tmp_path, "--batches", "0"), "0")
    expect_refused(tune(tmp_path, "--batches", "1,many"), "many")
    expect_refused(tune(tmp_path, "--owners", "0"), "0")
    expect_refused(tune(tmp_path, threads=-1), "-1")
    expect_refused(dmuonctl("tune", "--spec", tmp_path / "none.json"), "none.json")
    expect_refused(dmuonctl("tune"), "--spec")
    assert not (tmp_path / "cache.json").exists()


def test_spec_without_matrices(tmp_path):
    path = write_spec(tmp_path, {"parameters": [{"name": "bias", "shape": [32]}]})
    expect_refused(dmuonctl("tune", "--spec", path, "--cache", tmp_path / "cache.json"),
                   "nothing to tune")


def test_precision_that_the_device_lacks(tmp_path):
    spec = dict(SPEC, groups={"muon": {"precision": "fp16"}})
    path = write_spec(tmp_path, spec)
    expect_refused(dmuonctl("tune", "--spec", path, "--cache", tmp_path / "cache.json"),
                   "groups.muon.precision", "fp16")


def test_foreign_file_is_left_alone(tmp_path):
    path = tmp_path / "cache.json"
    for text in ("", "{", '{"format": "other", "entries": {}}', "precious notes"):
        path.write_text(text)
        expect_refused(tune(tmp_path), "--cache", str(path))
        assert path.read_text() == text


def test_cache_that_cannot_be_written(tmp_path):
    expect_refused(dmuonctl("tune", "--spec", write_spec(tmp_path), "--cache",
                            tmp_path / "no" / "c.json"), "--cache", "c.json")
