"""dmuonctl itself: version, help, plan, and status without a daemon."""

import json
import pathlib
import socket

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
    for command in ("replay", "plan", "simulate", "status", "drain"):
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
    assert plan["lower_bound_flops"] <= plan["makespan_flops"]
    assert plan["makespan_flops"] == max(load["cost_flops"] for load in plan["loads"])


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
