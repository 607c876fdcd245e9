"""The archive for a bare machine, unpacked into an empty folder and run there on the CPU backend,
without a network where this machine lets us take it away."""

import json
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOREIGN = r"\b(?:lib)?mpi|grpc|protobuf|spdlog|cli11|tomlplusplus|nlohmann"
FAILING_TEST = """
TEST(GpuCheck, NoticesAFailure) { EXPECT_EQ(1, 2); }
"""


def without_network():
    command = ["unshare", "--net"]
    return command if subprocess.run([*command, "true"], capture_output=True,
                                     check=False).returncode == 0 else []


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([ROOT / "deploy/gpu-check.sh", "--bundle", folder / "b.tar.gz"], check=True)
    subprocess.run(["tar", "-C", folder, "-xzf", folder / "b.tar.gz"], check=True)
    return folder / "dmuon-gpu-check"


def check(unpacked):
    """(exit code, output, report)"""
    result = subprocess.run(
        [*without_network(), "deploy/gpu-check.sh", "--cpu", "--report", "r.json"], cwd=unpacked,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    report = unpacked / "r.json"
    assert report.exists(), result.stdout
    return result.returncode, result.stdout, json.loads(report.read_text(encoding="utf-8"))


def test_builds_tests_and_measures(unpacked):
    code, output, report = check(unpacked)
    assert (code, report["problems"]) == (0, []), output
    assert report["backend"] == "cpu"
    assert report["commit"] == (unpacked / "COMMIT").read_text(encoding="utf-8").strip()
    tests = report["tests"]
    assert tests["failed"] == 0 and tests["failed_names"] == []
    assert tests["passed"] > 100 and tests["on_device"] > 30
    assert tests["skipped"] == len(tests["skipped_names"])
    assert "Backends/DeviceTest.ReduceFollowsTheTree/cuda" in tests["skipped_names"]
    assert [(record["shape"], record["batch"], record["precision"])
            for record in report["benchmarks"]] == [
                (shape, batch, precision)
                for shape, batch in (("256x683", 16), ("512x512", 1), ("128x512", 8))
                for precision in ("fp32", "bf16")]
    for record in report["benchmarks"]:
        assert record["median_ms"] > 0 and record["gemm_gflops"] > 0
        assert 0 < record["roofline"] < 2
        assert record["device"].startswith("cpu (")


def test_needs_no_other_library(unpacked):
    build = unpacked / "build/gpu-check-cpu"
    for program in ("kernels_test", "bench_newton_schulz"):
        libraries = subprocess.run(["ldd", build / "bin" / program], check=True, text=True,
                                   capture_output=True).stdout
        assert "libdnnl" in libraries
        assert not re.search(FOREIGN + "|gtest", libraries, re.IGNORECASE)
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    assert "googletest" in cache
    looked_for = re.findall(r"^([\w-]+):", cache, re.MULTILINE)
    assert not [name for name in looked_for if re.search(FOREIGN, name, re.IGNORECASE)]


def test_reports_a_failing_test(unpacked):
    source = unpacked / "tests/kernels/thread_pool_test.cc"
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("}  // namespace\n", FAILING_TEST + "}  // namespace\n", 1),
                      encoding="utf-8")
    code, output, report = check(unpacked)
    assert code == 1, output
    assert report["tests"]["failed_names"] == ["GpuCheck.NoticesAFailure"]
    assert report["tests"]["failed"] == 1
    assert [problem.split(";")[0] for problem in report["problems"]] == [
        "step tests failed with exit code 1"]
