"""dmuonctl itself: version, help, plan, and status without a daemon."""

import json
import pathlib
import socket
import xml.etree.ElementTree

from replay_support import dmuonctl

MODELS = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "models"


def test_version():
    done = dmuonctl("--version")
    assert done.returncode == 0
    assert done.stdout.split()[0] == "dmuonctl"
    assert done.stdout.split()[1].count(".") == 2


def test_help_lists_every_subcommand():
    done = dmuonctl("--help")
    assert done.returncode == 0
    for command in ("replay", "plan", "simulate", "tune", "status", "drain"):
        assert command in done.stdout


def test_plan_as_json():
    done = dmuonctl("plan", "--spec", MODELS / "gpt2-124m.json", "--owners", 4, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["parameters"] == 148
    # 12 layers of fused QKV (3 matrices), attention projection, and two MLP matrices.
    assert sum(load["matrices"] for load in plan["loads"]) == 12 * 6
    # GPT-2 small has 124,439,808 parameters.
    assert sum(load["elements"] for load in plan["loads"]) == 124439808
    assert plan["lower_bound_s"] <= plan["makespan_s"] <= plan["greedy_makespan_s"]
    assert plan["makespan_s"] == max(load["seconds"] for load in plan["loads"])
    # fp32 gradient, and two halves of the fp32 master.
    assert sum(load["bytes"]["gradients"] for load in plan["loads"]) == 4 * 124439808
    assert sum(load["bytes"]["masters"] for load in plan["loads"]) == 8 * 124439808
    for load in plan["loads"]:
        parts = load["muon_s"] + load["elementwise_s"] + load["communication_s"]
        assert abs(load["seconds"] - parts) <= 1e-12 * parts


def test_plan_with_a_profile(tmp_path):
    """The command of the README, and what it promises about this case."""
    svg = tmp_path / "plan.svg"
    done = dmuonctl("plan", "--spec", MODELS / "qwen2.5-7b.json", "--owners", 64, "--profile",
                    "a800", "--svg", svg, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["profile"] == "a800"
    assert plan["proven_optimal"] and not plan["stopped_by_clock"]
    assert plan["makespan_s"] < plan["greedy_makespan_s"]
    assert 0 < plan["idle_share"] < 1 and plan["solve_s"] > 0
    assert len(plan["loads"]) == 64
    # A background, and three parts of a bar for each owner.
    rectangles = xml.etree.ElementTree.parse(svg).findall(".//{http://www.w3.org/2000/svg}rect")
    assert len(rectangles) == 1 + 3 * 64


def test_plan_says_what_is_guessed(tmp_path):
    record = {"rows": 768, "cols": 768, "batch": 1, "precision": "fp32", "form": "direct",
              "restart": [], "iterations": 5, "choice": {}, "median_s": 0.01}
    device = {"kind": "cpu", "name": "c", "threads": 1, "libraries": ""}
    (tmp_path / "tuning.json").write_text(json.dumps(
        {"format": "dmuon-tuning-1", "entries": {
            "c": {"device": device, "elementwise_bytes_per_s": 1e10, "records": [record]}}}))
    done = dmuonctl("plan", "--spec", MODELS / "gpt2-124m.json", "--owners", 2, "--precision",
                    "fp32", "--profile", tmp_path / "tuning.json", "--json")
    assert done.returncode == 0, done.stderr
    warnings = json.loads(done.stdout)["warnings"]
    # 768 x 768 is measured; 3072 x 768 and 768 x 3072 are not.
    assert len(warnings) == 2
    assert all("scaled from 768 x 768" in warning for warning in warnings)


def test_plan_as_table():
    done = dmuonctl("plan", "--spec", MODELS / "qwen2.5-7b.json", "--owners", 256)
    assert done.returncode == 0, done.stderr
    assert "fewer matrices than owners" in done.stdout
    assert "224 more" in done.stdout


def test_plan_does_not_depend_on_registration_order(tmp_path):
    spec = json.loads((MODELS / "gpt2-124m.json").read_text())
    spec["parameters"].reverse()
    (tmp_path / "turned.json").write_text(json.dumps(spec))
    hashes = {json.loads(dmuonctl("plan", "--spec", path, "--owners", 3, "--json").stdout)
              ["plan_hash"] for path in (MODELS / "gpt2-124m.json", tmp_path / "turned.json")}
    assert len(hashes) == 1


def test_plan_refuses_nonsense(tmp_path):
    for owners in (0, -1, "many"):
        done = dmuonctl("plan", "--spec", MODELS / "gpt2-124m.json", "--owners", owners)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    done = dmuonctl("plan", "--spec", tmp_path / "none.json", "--owners", 2)
    assert done.returncode == 2
    assert "none.json" in done.stderr


def test_plan_refuses_in_one_line(tmp_path):
    (tmp_path / "empty.json").write_text('{"parameters": []}')
    (tmp_path / "typo.json").write_text('{"parameterz": []}')
    (tmp_path / "profile.json").write_text('{"format": "dmuon-profile-1", "nam": "x"}')
    spec = MODELS / "gpt2-124m.json"
    for words, arguments in [
            (("a900", "a800", "b200"), ("--spec", spec, "--profile", "a900")),
            (("profile.json", "nam"), ("--spec", spec, "--profile", tmp_path / "profile.json")),
            (("regular file",), ("--spec", spec, "--profile", tmp_path)),
            (("memory", "no room"), ("--spec", spec, "--memory-gib", 0.1)),
            (("memory", "one matrix"), ("--spec", spec, "--memory-gib", 0.001)),
            (("x.svg",), ("--spec", spec, "--svg", tmp_path / "none" / "x.svg")),
            (("--profile-entry",), ("--spec", spec, "--profile-entry", "gpu")),
            (("empty.json", "parameters"), ("--spec", tmp_path / "empty.json")),
            (("typo.json", "parameterz"), ("--spec", tmp_path / "typo.json"))]:
        done = dmuonctl("plan", "--owners", 4, *arguments)
        assert done.returncode == 2, arguments
        assert len(done.stderr.splitlines()) == 1
        for word in words:
            assert word in done.stderr


def expect_no_daemon(address):
    for command in ("status", "drain"):
        done = dmuonctl(command, "--address", address)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert "no dmuond answers at " + address in done.stderr


def test_no_daemon(tmp_path):
    expect_no_daemon(f"unix:{tmp_path}/none.sock")


def test_stale_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "stale.sock"))
    expect_no_daemon(f"unix:{tmp_path}/stale.sock")


def test_address_that_is_none():
    for address in ("localhost:1", "unix:", "unix:/" + "x" * 200):
        done = dmuonctl("status", "--address", address)
        assert done.returncode == 2
        assert "--address" in done.stderr and len(done.stderr.splitlines()) == 1
