"""Measured models: the packaged Harmony tables, both file formats, and what is wrong in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hwmodels as hw
from hwmodels.compute import LayerWork, Phase, Work, seconds
from hwmodels.errors import CommodiousError, InvalidInput, UnknownName
from workloads.model import Model
from workloads.models.profile import from_profile, harmony, harmony_names

# layers, parameters, bytes of buffers, states a weight; github.com/msr-fiddle/harmony, 5fd838f
TOTALS = {
    "harmony/bert-large": (28, 335_143_938, 0, 2),
    "harmony/bert-large-seq128": (28, 335_143_938, 0, 2),
    "harmony/bert-96": (100, 1_242_072_066, 0, 2),
    "harmony/gpt2-medium": (28, 406_286_336, 100_663_296, 2),
    "harmony/gpt2-xl": (52, 1_638_022_400, 201_326_592, 2),
    "harmony/gpt2-10b": (54, 10_484_899_840, 209_715_200, 2),
    "harmony/gpt2-20b": (104, 20_553_891_840, 419_430_400, 2),
    "harmony/gpt2-30b": (154, 30_622_883_840, 629_145_600, 2),
    "harmony/gpt2-40b": (204, 40_691_875_840, 838_860_800, 2),
    "harmony/vgg416": (417, 577_894_184, 0, 1),
    "harmony/resnet1026": (515, 801_800_232, 1_981_984, 1),
}


def _time(model: Model, phase: Phase, samples: int, layers: range) -> float:
    assert model.profile is not None
    rows = (
        model.layers[i].profile_row for i in layers if phase != "update" or model.layers[i].weights
    )
    return sum(model.profile.seconds(row, phase, samples) for row in rows)


def test_names() -> None:
    assert set(harmony_names()) == set(TOTALS)
    with pytest.raises(UnknownName, match="did you mean 'harmony/gpt2-xl'"):
        harmony("harmony/gpt2-xxl")


@pytest.mark.parametrize("name", TOTALS)
def test_totals(name: str) -> None:
    model = harmony(name)
    layers, params, buffers, states = TOTALS[name]
    assert model.name == name
    assert len(model.layers) == layers
    assert model.params == params
    assert sum(weight.buffer_bytes for weight in model.weights) == buffers
    assert sum(map(model.weight_bytes, model.weights)) == 4 * params + buffers
    assert sum(map(model.state_bytes, model.weights)) == 4 * states * params
    assert model.layers[-1].output_bytes == 0
    assert model.profile is not None
    assert model.profile.gpu == "gtx-1080-ti"
    assert model.profile.gpu in hw.gpus()


def test_gpt2_xl_rows() -> None:
    model = harmony("harmony/gpt2-xl")
    profile = model.profile
    assert profile is not None
    assert [layer.name for layer in model.layers[:2]] == ["embedding", "block.0"]
    assert profile.seconds("embedding", "forward", 1) == pytest.approx(412.75e-6, rel=1e-12)
    assert profile.seconds("block.0", "forward", 1) == pytest.approx(14033.95e-6, rel=1e-12)
    assert profile.seconds("block.1", "recompute", 4) == pytest.approx(51563.16e-6, rel=1e-12)
    pure = (146344.71 - 51564.07) * 1e-6
    assert profile.seconds("block.0", "backward", 4) == pytest.approx(pure, rel=1e-12)
    assert profile.seconds("lm_head", "update", 1) == pytest.approx(109104.6e-6)
    assert model.tokens == 1024
    assert model.input_bytes == 8192
    assert model.layers[1].output_bytes == 1024 * 1600 * 4
    assert not profile.extrapolates("block.0", "forward", 18)
    assert profile.extrapolates("block.0", "backward", 10)


@pytest.mark.parametrize(
    ("name", "samples", "count", "fused", "first", "published", "within"),
    [
        ("harmony/bert-large-seq128", 8, 4, 24, 3, 2.960276, 3e-6),
        ("harmony/gpt2-medium", 2, 128, 21, 6, 172.596246, 3e-6),
        ("harmony/gpt2-10b", 1, 32, 52, 1, 362.73705, 3e-6),
        ("harmony/gpt2-40b", 1, 32, 202, 1, 1432.343844, 3e-6),
    ],
)
def test_one_gpu_iteration_equals_harmonys_own(
    name: str, samples: int, count: int, fused: int, first: int, published: float, within: float
) -> None:
    """Harmony DP on one GPU with free transfers, as Harmony's simulator prints it.

    Forward of all layers before the fused pack, recompute and backward of all, then the CPU
    update of the first pack (layers up to ``first``), the only one that nothing hides.
    """
    model = harmony(name)
    every = range(len(model.layers))
    total = count * _time(model, "forward", samples, range(fused))
    total += count * _time(model, "recompute", samples, every)
    total += count * _time(model, "backward", samples, every)
    total += _time(model, "update", 1, range(first + 1))
    assert total == pytest.approx(published, rel=within)


@pytest.mark.parametrize(
    ("name", "kind", "tokens", "hidden"),
    [
        ("harmony/gpt2-xl", "block", 1024, 1600),
        ("harmony/gpt2-medium", "block", 1024, 1024),
        ("harmony/gpt2-40b", "block", 1024, 4096),
        ("harmony/bert-96", "encoder", 512, 1024),
        ("harmony/bert-large-seq128", "encoder", 128, 1024),
    ],
)
def test_transformer_flops(name: str, kind: str, tokens: int, hidden: int) -> None:
    model = harmony(name)
    blocks = [layer for layer in model.layers if layer.kind == kind]
    each = 24 * tokens * hidden**2 + 4 * tokens**2 * hidden
    assert {layer.forward_flops for layer in blocks} == {each}
    assert {layer.backward_flops for layer in blocks} == {2 * each}
    for layer in model.layers:
        if layer.kind == "lm_head":
            assert layer.forward_flops == 2 * tokens * hidden * 50257


@pytest.mark.parametrize("name", TOTALS)
def test_other_gpus_by_roofline(name: str) -> None:
    """Without times of its own GPU every layer still has a time."""
    model = harmony(name)
    gpu = hw.gpu("titan-rtx")
    for layer in model.layers:
        for phase, flops, nbytes in (
            ("forward", layer.forward_flops, layer.forward_bytes),
            ("backward", layer.backward_flops, layer.backward_bytes),
        ):
            part = LayerWork(layer.profile_row, phase, 1, flops, nbytes, "fp32")  # pyright: ignore
            assert seconds(gpu, Work((part,)), model.profile) > 0


# files -------------------------------------------------------------------------------------------


def _own() -> dict[str, Any]:
    block = {
        "name": "block",
        "count": 2,
        "params": 10,
        "buffers": "4 B",
        "output": "1 kB",
        "stash": "2 kB",
        "update": "3 ms",
        "forward": [10, 20],
        "backward": [30],
    }
    head = {"name": "head", "params": 5, "output": "0 B", "forward": [1, 2], "backward": [3]}
    return {
        "format": "commodious-profile-1",
        "name": "mine",
        "gpu": "titan-rtx",
        "precision": "fp32",
        "optimizer": "adam",
        "input": "8 B",
        "time_unit": "ms",
        "sizes": {"forward": [1, 2], "backward": [2]},
        "layers": [block, head],
    }


def _theirs() -> dict[str, Any]:
    def group(kind: str, first: int, last: int, into: int, out: int, slope: int) -> dict[str, Any]:
        return {
            "type": kind,
            "count": last - first + 1,
            "layer_ranges": [[first, last]],
            "weight_bytes": 40,
            "buffer_bytes": 8,
            "optimizer_state_bytes": 40,
            "input_bytes_u1": into,
            "output_bytes_u1": out,
            "update_cpu_s_mean": 0.5,
            "fwd_s_mean": [1.0, 3.0],
            "bwd_incl_recompute_s_mean": [4.0, 7.0, 9.0],
            "fwd_mem_bytes": [500 + slope // 2, 500 + 3 * (slope // 2)],
            "bwd_mem_bytes": [1000 + slope, 1000 + 2 * slope, 1000 + 3 * slope],
        }

    return {
        "model": "theirs",
        "num_layers": 3,
        "seqlen": None,
        "dtype": "float32",
        "optimizer": "SGD momentum 0.9",
        "fwd_u": [1, 3],
        "bwd_u": [1, 2, 3],
        "layer_groups": [group("stem", 0, 0, 7, 10, 100), group("block", 1, 2, 10, 10, 100)],
    }


def _load(folder: Path, data: object) -> Model:
    path = folder / "profile.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return from_profile(path)


def test_own_format(tmp_path: Path) -> None:
    data = _own()
    model = _load(tmp_path, data)
    assert [layer.name for layer in model.layers] == ["block.0", "block.1", "head"]
    assert [layer.profile_row for layer in model.layers] == ["block.0", "block.0", "head"]
    assert [model.layer_input_bytes(i) for i in range(3)] == [8, 1000, 1000]
    assert model.params == 25
    assert model.profile is not None
    assert model.profile.seconds("block.0", "forward", 2) == 0.02
    assert model.profile.seconds("block.0", "backward", 2) == 0.03
    assert model.profile.seconds("block.0", "update", 7) == 0.003
    assert model.notes == ("Layer times were measured on titan-rtx.",)


def test_exact_times_go_before_the_groups(tmp_path: Path) -> None:
    data = _own()
    data["exact"] = {"forward": {"2": [21, 22, 23], "4": [41, 42, 43]}, "update": [1, 2, 3]}
    model = _load(tmp_path, data)
    profile = model.profile
    assert profile is not None
    assert [layer.profile_row for layer in model.layers] == ["block.0", "block.1", "head"]
    assert [profile.seconds("block.1", "forward", u) for u in (1, 2, 4)] == [0.01, 0.022, 0.042]
    assert profile.seconds("block.1", "forward", 3) == pytest.approx(0.032)
    assert profile.seconds("head", "update", 1) == 0.003


def test_harmony_layout(tmp_path: Path) -> None:
    """Backward loses the forward at the same size; memory slopes lose their known parts."""
    model = _load(tmp_path, _theirs())
    profile = model.profile
    assert profile is not None
    assert [layer.name for layer in model.layers] == ["stem", "block.0", "block.1"]
    assert [profile.seconds("stem", "backward", u) for u in (1, 2, 3)] == [3.0, 5.0, 6.0]
    assert [layer.stash_bytes for layer in model.layers] == [50 - 7 - 10, 30, 30]
    # backward: input, output, their gradients (none of the stem's input), stash, then scratch
    assert [layer.workspace_bytes for layer in model.layers] == [100 - 7 - 20 - 33, 30, 30]
    assert model.input_bytes == 7
    assert model.optimizer.name == "momentum"
    assert model.weights[0].params == 10
    assert model.weights[0].buffer_bytes == 8


def test_harmony_layout_with_exact_times(tmp_path: Path) -> None:
    data = _theirs()
    data["exact_per_layer"] = {
        "update_cpu_us": [1, 2, 3],
        "fwd_us": {"2": [10, 20, 30]},
        "bwd_incl_recompute_us": {"2": [15, 27, 39]},
    }
    profile = _load(tmp_path, data).profile
    assert profile is not None
    assert profile.seconds("block.0", "forward", 2) == pytest.approx(20e-6)
    assert profile.seconds("block.1", "backward", 2) == pytest.approx(9e-6)
    assert profile.seconds("block.0", "update", 1) == pytest.approx(2e-6)
    del data["exact_per_layer"]["fwd_us"]["2"]
    with pytest.raises(InvalidInput, match="no forward times there"):
        _load(tmp_path, data)


def _changed(data: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    *parents, last = path.split("/")
    place: Any = data
    for part in parents:
        place = place[int(part) if part.isdigit() else part]
    key = int(last) if last.isdigit() else last
    if value is None:
        del place[key]
    else:
        place[key] = value
    return data


OWN_ERRORS = [
    ("gpus", "x", "unknown field 'gpus'; did you mean 'gpu'"),
    (
        "layers/0/stsh",
        "1 B",
        "unknown field 'stsh' in 'layers' entry 'block'; did you mean 'stash'",
    ),
    ("layers/1/output", None, "field 'output' is missing in 'layers' entry 'head'; add it"),
    ("layers/0/output", 1000, "write an amount of memory with its unit"),
    ("layers/0/forward", [1], "layer 'block' has 1 forward times for 2 microbatch sizes"),
    ("layers/0/forward", [1, -2], "greater than or equal to 0"),
    ("layers/0/count", 0, "greater than or equal to 1"),
    ("layers/1/name", "block.0", "two layers are named 'block.0'"),
    ("layers", [], "field 'layers'"),
    ("sizes/forward", [2, 1], "forward sizes must increase"),
    ("sizes/backward", None, "field 'backward' is missing in 'sizes'"),
    ("time_unit", "min", "field 'time_unit'"),
    ("format", "commodious-profile-9", "field 'format'"),
    ("precision", "fp31", "did you mean 'fp32'"),
    ("optimizer", "adm", "did you mean 'adam'"),
    ("exact", {"forward": {"2": [1]}}, "1 forward size-2 times for 3 layers"),
    ("exact", {"forward": {"two": [1, 2, 3]}}, "'two' in 'exact' is not a microbatch size"),
]

THEIR_ERRORS = [
    ("layer_groups/1/fwd_s_mean", [1.0], "'fwd_s_mean' of group 'block' has 1 values"),
    ("layer_groups/1/layer_ranges", [[2, 3]], "layer 1 is next"),
    ("layer_groups/0/weight_bytes", None, "missing in 'layer_groups' entry 'stem'"),
    ("num_layers", 4, "name 3 layers, 'num_layers' says 4"),
    ("layer_groups/0/optimizer_state_bytes", 1, "fit no known optimizer"),
    ("dtype", "float64", "field 'dtype'"),
]


@pytest.mark.parametrize(
    ("data", "path", "value", "says"),
    [("own", *case) for case in OWN_ERRORS] + [("theirs", *case) for case in THEIR_ERRORS],
)
def test_errors(tmp_path: Path, data: str, path: str, value: object, says: str) -> None:
    table = _changed(_own() if data == "own" else _theirs(), path, value)
    with pytest.raises(CommodiousError) as caught:
        _load(tmp_path, table)
    message = str(caught.value)
    assert says in message
    assert "profile.json" in message
    assert "\n" not in message


@pytest.mark.parametrize(("text", "says"), [("{", "not valid JSON"), ("[1]", "one JSON object")])
def test_not_a_profile(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        _load(tmp_path, text)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        from_profile(tmp_path / "none.json")
