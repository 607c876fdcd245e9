"""dmuonctl simulate, through the program."""

import json
import pathlib
import xml.etree.ElementTree

import pytest

from replay_support import dmuonctl

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
GPT2 = DEPLOY / "models" / "gpt2-124m.json"
A800 = DEPLOY / "clusters" / "a800-8x32.json"


def simulate(*arguments):
    done = dmuonctl("simulate", "--spec", GPT2, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*arguments):
    done = dmuonctl("simulate", *arguments)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_json_has_all_systems():
    result = json.loads(simulate("--cluster", A800, "--gpus", 16, "--json"))
    assert set(result["systems"]) == {"training_only", "adamw", "gather", "dmuond"}
    assert result["nodes"] == 2
    for system in result["systems"].values():
        parts = ("forward_s", "backward_s", "optimizer_s", "exposed_communication_s", "idle_s")
        assert sum(system[part] for part in parts) == pytest.approx(system["step_s"])
    systems = result["systems"]
    assert result["comparison"]["step_speedup"] == pytest.approx(
        systems["gather"]["step_s"] / systems["dmuond"]["step_s"])
    assert len(systems["dmuond"]["owner_busy_s"]) == 16


def test_bytes_of_sharded_gpt2_on_two_nodes():
    result = json.loads(simulate("--cluster", A800, "--gpus", 16, "--json"))
    # GPT-2 small has 124,439,808 parameters of 4 bytes. Each of two nodes receives the half that it
    # lacks: when gradients are scattered and when the forward pass gathers, all layers; when the
    # backward pass gathers, all but the last in canonical order: ln_f, wpe and wte.
    gathered_twice = 124439808 - 2 * 768 - 1024 * 768 - 50257 * 768
    expected = 4 * (2 * 124439808 + gathered_twice)
    systems = result["systems"]
    assert systems["adamw"]["bytes"]["between_nodes"] == pytest.approx(expected)
    # Half of each gradient and of each parameter crosses once more to and from its owner.
    assert systems["dmuond"]["bytes"]["between_nodes"] == pytest.approx(expected + 4 * 124439808)


def test_one_system_alone():
    result = json.loads(simulate("--cluster", A800, "--gpus", 8, "--system", "adamw", "--json"))
    assert set(result["systems"]) == {"training_only", "adamw"}
    assert result["comparison"] == {}


def test_table_lists_systems_and_assumptions():
    text = simulate("--cluster", A800, "--gpus", 256)
    for expected in ("training_only", "adamw", "gather", "dmuond", "assumptions", "200 GB/s"):
        assert expected in text


def test_same_run_same_answer():
    arguments = ("--cluster", A800, "--gpus", 32, "--json")
    assert simulate(*arguments) == simulate(*arguments)


def test_more_tokens_take_longer():
    few, many = (json.loads(simulate("--cluster", A800, "--gpus", 8, "--tokens", tokens, "--json"))
                 for tokens in (4096, 8192))
    assert many["systems"]["adamw"]["forward_s"] == pytest.approx(
        2 * few["systems"]["adamw"]["forward_s"])


def test_every_sample_cluster():
    for cluster in sorted((DEPLOY / "clusters").glob("*.json")):
        gpus = 2 * json.loads(cluster.read_text())["gpus_per_node"]
        result = json.loads(simulate("--cluster", cluster, "--gpus", gpus, "--layout", "replicas",
                                     "--json"))
        assert result["systems"]["dmuond"]["step_s"] > 0


def test_svg(tmp_path):
    simulate("--cluster", A800, "--gpus", 16, "--svg", tmp_path / "step.svg")
    root = xml.etree.ElementTree.parse(tmp_path / "step.svg").getroot()
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    for expected in ("h.0: ", "gather h.1: ", "bucket 0: ", "commit: "):
        assert any(title.startswith(expected) for title in titles), expected


def test_refusals(tmp_path):
    good = ("--spec", GPT2, "--cluster", A800, "--gpus", 8)
    for gpus in (0, -8, 12, 264, "many"):
        refusal("--spec", GPT2, "--cluster", A800, "--gpus", gpus)
    assert "12 GPUs" in refusal("--spec", GPT2, "--cluster", A800, "--gpus", 12)
    assert "none.json" in refusal("--spec", GPT2, "--cluster", tmp_path / "none.json",
                                  "--gpus", 8)
    assert "none.json" in refusal("--spec", tmp_path / "none.json", "--cluster", A800,
                                  "--gpus", 8)
    assert "h900" in refusal(*good, "--profile", "h900")
    assert "cannot be written" in refusal(*good, "--svg", tmp_path / "none" / "step.svg")
    for more in (("--system", "sgd"), ("--tokens", 0), ("--layout", "rows"), ("--tokenz", 1)):
        refusal(*good, *more)


def test_a_misspelt_key_is_named_with_its_file(tmp_path):
    cluster = json.loads(A800.read_text())
    cluster["gpu_per_node"] = cluster.pop("gpus_per_node")
    path = tmp_path / "misspelt.json"
    path.write_text(json.dumps(cluster))
    text = refusal("--spec", GPT2, "--cluster", path, "--gpus", 8)
    assert "misspelt.json: gpu_per_node" in text
    assert "gpus_per_node?" in text
