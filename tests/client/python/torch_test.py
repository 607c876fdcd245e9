"""How DMuon turns modules into a session spec. Steps are tested with a daemon in tests/e2e."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import dmuond  # noqa: E402
import numpy as np  # noqa: E402
from dmuond import torch as adapter  # noqa: E402

RULES = {"muon": {"lr": 0.02}, "adamw": {"lr": 0.001, "betas": (0.9, 0.999)}}


def model():
    return torch.nn.ModuleDict({
        "wte": torch.nn.Embedding(10, 4), "qkv": torch.nn.Linear(4, 12),
        "conv": torch.nn.Conv2d(2, 3, 3)})


def groups(named, adamw):
    return [adapter._named_group(group, i)
            for i, group in enumerate(adapter._groups_by_rule(list(named), adamw, RULES))]


def names_by_rule(adamw):
    return {group["rule"]: group["param_names"]
            for group in groups(model().named_parameters(), adamw)}


def test_rules_by_dimension_and_pattern():
    assert names_by_rule(["wte.*"]) == {
        "muon": ["qkv.weight", "conv.weight"],
        "adamw": ["wte.weight", "qkv.bias", "conv.bias"]}
    assert names_by_rule([])["muon"] == ["wte.weight", "qkv.weight", "conv.weight"]
    assert names_by_rule(lambda name, p: p.ndim == 4)["muon"] == ["wte.weight", "qkv.weight"]


def test_frozen_parameters_are_left_out():
    frozen = model()
    frozen["qkv"].requires_grad_(False)
    assert groups(frozen.named_parameters(), ["wte.*"])[0]["param_names"] == ["conv.weight"]


def test_spec_names_views_dtypes_and_groups():
    mixed = model()
    mixed["qkv"].to(torch.bfloat16)
    spec = adapter._spec_of(groups(mixed.named_parameters(), ["wte.*"]),
                            {"qkv.weight": {"split_rows": [4, 4, 4]}}, {"preset": "moonlight"})
    assert spec["preset"] == "moonlight"
    assert spec["groups"] == {
        "muon": {"rule": "muon", "lr": 0.02},
        "adamw": {"rule": "adamw", "lr": 0.001, "betas": [0.9, 0.999]}}
    entries = {entry["name"]: entry for entry in spec["parameters"]}
    assert entries["qkv.weight"] == {
        "name": "qkv.weight", "shape": [12, 4], "dtype": "bf16", "group": "muon",
        "view": {"split_rows": [4, 4, 4]}}
    assert entries["conv.weight"]["view"] == "flatten"
    assert entries["wte.weight"] == {
        "name": "wte.weight", "shape": [10, 4], "dtype": "fp32", "group": "adamw"}


def refused(words, *args, **kwargs):
    with pytest.raises(dmuond.InvalidArgument, match=words):
        adapter.DMuon(*args, **kwargs)


def test_refusals_in_words():
    named = list(model().named_parameters())
    refused("model.named_parameters", model().parameters())
    refused("say which matrices AdamW should update", named)
    refused(r"pattern 'wt\.\*' matches no parameter", named, adamw=["wt.*"])
    refused("view pattern 'kqv' matches no parameter", named, adamw=[], views={"kqv": "stack"})
    refused("no parameters", [])
    refused("needs rule", [{"params": named, "lr": 0.1}])
    refused("needs pairs of name and parameter", [
        {"params": list(model().parameters()), "rule": "muon", "lr": 0.1}])
    refused("'w' of shape .* needs a view", [("w", torch.zeros(2, 3, 4, requires_grad=True))],
            adamw=[])
    refused("float64", [("w", torch.zeros(2, 3, dtype=torch.float64, requires_grad=True))],
            adamw=[])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_arrays_are_the_memory_of_cpu_tensors(dtype):
    tensor = torch.nn.Parameter(torch.arange(6, dtype=torch.float32).reshape(2, 3).to(dtype))
    array = adapter._array_of(tensor)
    assert array.shape == (2, 3) and array.ctypes.data == tensor.data_ptr()
    bits = array.view(np.uint32 if dtype == torch.float32 else np.uint16)
    one = {torch.float32: 0x3F800000, torch.float16: 0x3C00, torch.bfloat16: 0x3F80}[dtype]
    assert bits[0, 1] == one
    assert torch.equal(adapter._tensor_of(array, dtype), tensor.detach())


def test_other_tensors_are_copied():
    turned = torch.arange(6.0).reshape(2, 3).T
    assert adapter._array_of(turned).tolist() == [[0, 3], [1, 4], [2, 5]]
    sparse = torch.sparse_coo_tensor([[1]], [5.0], (3,))
    assert adapter._array_of(sparse).tolist() == [0, 5, 0]
