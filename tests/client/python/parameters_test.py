import json

import numpy as np
import pytest
from dmuond import errors
from dmuond.parameters import load_spec, match_parameters

ENTRIES = [{"name": "layer.0.weight", "shape": [4, 3]},
           {"name": "layer.1.weight", "shape": [6, 2], "dtype": "bf16"}]


def arrays(**changes):
    values = {"layer.0.weight": np.arange(12, dtype=np.float32).reshape(4, 3),
              "layer.1.weight": np.arange(12, dtype=np.uint16).reshape(6, 2)}
    return {**values, **{name.replace("_", "."): value for name, value in changes.items()}}


def refused(words, given, regions=None):
    with pytest.raises(errors.InvalidArgument) as caught:
        match_parameters(ENTRIES, given, regions)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


def test_unknown_name_suggests_the_close_one():
    given = arrays()
    given["layer.0.wieght"] = given.pop("layer.0.weight")
    refused(["'layer.0.wieght'", "not in the session spec", "did you mean 'layer.0.weight'"], given)


def test_missing_array_is_named():
    given = arrays()
    del given["layer.1.weight"]
    refused(["'layer.1.weight'", "was not given"], given)


def test_wrong_shape_and_dtype_are_named():
    given = arrays()
    given["layer.0.weight"] = np.zeros((3, 4), np.float32)
    refused(["'layer.0.weight'", "[3, 4]", "[4, 3]"], given)
    given["layer.0.weight"] = np.zeros((4, 3), np.float64)
    refused(["'layer.0.weight'", "float64", "fp32"], given)
    given["layer.0.weight"] = np.zeros((4, 3), ">f4")
    refused(["'layer.0.weight'", ">f4", "fp32"], given)


def test_read_only_array_is_refused():
    given = arrays()
    given["layer.0.weight"].flags.writeable = False
    refused(["'layer.0.weight'", "read-only"], given)


@pytest.mark.parametrize("region, words", [
    (((0, 0), (5, 3)), ["0..5 in dimension 0", "outside 0..4"]),
    (((-1, 0), (2, 3)), ["-1..1 in dimension 0"]),
    (((0,), (4,)), ["one number for each of the 2 dimensions"]),
])
def test_region_outside_the_parameter_is_refused(region, words):
    refused(["'layer.0.weight'", *words], arrays(), {"layer.0.weight": region})


def test_region_of_an_unknown_parameter_is_refused():
    refused(["'layer.9'", "no such parameter"], arrays(), {"layer.9": ((0, 0), (1, 1))})


def test_array_has_the_shape_of_its_region():
    regions = {"layer.0.weight": ((2, 0), (2, 3))}
    refused(["[4, 3]", "[2, 3]"], arrays(), regions)
    given = arrays()
    given["layer.0.weight"] = given["layer.0.weight"][2:]
    parameter = match_parameters(ENTRIES, given, regions)["layer.0.weight"]
    assert parameter.region.start == (2, 0) and parameter.shape == (4, 3)


def test_contiguous_arrays_are_used_in_place_and_others_copied():
    given = arrays()
    fortran = np.asfortranarray(given["layer.0.weight"])
    given["layer.0.weight"] = fortran
    matched = match_parameters(ENTRIES, given, None)
    strided, plain = matched["layer.0.weight"], matched["layer.1.weight"]
    bits = plain.bits_of(plain.array, "parameter")
    assert np.shares_memory(bits, plain.array)
    bits = strided.bits_of(fortran, "parameter")
    assert bits.view(np.float32).tolist() == list(range(12))
    bits[:] = np.arange(100, 112, dtype=np.float32).view(np.uint32)
    assert fortran.ravel().tolist() == list(range(12))
    strided.write_back(bits)
    assert fortran.ravel().tolist() == list(range(100, 112))


def test_spec_is_a_dict_or_a_json_text():
    spec = {"parameters": ENTRIES}
    for given in (spec, json.dumps(spec)):
        text, entries = load_spec(given)
        assert json.loads(text) == spec and entries == ENTRIES


@pytest.mark.parametrize("spec", ["", "{", "[]", "{}", '{"parameters": [{"name": "a"}]}',
                                  '{"parameters": [{"name": 1, "shape": [1]}]}'])
def test_spec_that_is_none_is_refused(spec):
    with pytest.raises(errors.InvalidArgument, match="session spec"):
        load_spec(spec)
