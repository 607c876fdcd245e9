"""Runs the usual PyTorch Newton-Schulz and ours in alternation and prints ratios.

Usage: compare_torch.py --bin build/release/bin [--device cuda] [--threads 2] [--rounds 5] [--json]

PyTorch runs the five quintic iterations in bf16, as most training code does, and in fp32 besides:
where the processor has no bf16 arithmetic, PyTorch's bf16 is slow and fp32 is the fairer opponent.
Its time covers the iteration alone; ours covers the whole Muon step (momentum, normalisation,
iteration, update).
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

SHAPES = [(1024, 4096, 1), (512, 2048, 1), (256, 1024, 1), (1024, 1024, 1), (2048, 2048, 1),
          (256, 256, 16), (128, 128, 32)]
KELLER_JORDAN = (3.4445, -4.7750, 2.0315)


def torch_newton_schulz(torch, gradient, dtype):
    a, b, c = KELLER_JORDAN
    x = gradient.to(dtype)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def time_torch(torch, device, shape, dtype):
    """Seconds of one orthogonalisation of the batch: median of at least three, warm."""
    rows, cols, batch = shape
    torch.manual_seed(1)
    gradient = torch.randn(batch, rows, cols, device=device)
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    finish()
    times = []
    while len(times) < 4 or (sum(times) < 0.5 and len(times) < 50):
        begin = time.perf_counter()
        torch_newton_schulz(torch, gradient, dtype)
        finish()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def run_ours(program, device, shape, threads):
    rows, cols, batch = shape
    return json.loads(subprocess.run(
        [program, "--device", device, "--shape", f"{rows}x{cols}", "--batch", str(batch),
         "--threads", str(threads), "--no-accuracy", "--json"], check=True, stdout=subprocess.PIPE,
        text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True, help="folder of bench_newton_schulz")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", action="append", help="ROWSxCOLSxBATCH; default: the shipped list")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    import torch  # after the thread count is set
    torch.set_num_threads(arguments.threads)
    shapes = SHAPES
    if arguments.shape:
        shapes = [tuple(int(part) for part in text.split("x")) for text in arguments.shape]

    rows = []
    for shape in shapes:
        ours, bf16, fp32 = [], [], []
        for _ in range(arguments.rounds):
            ours.append(run_ours(arguments.bin / "bench_newton_schulz", arguments.device, shape,
                                 arguments.threads))
            bf16.append(time_torch(torch, arguments.device, shape, torch.bfloat16))
            fp32.append(time_torch(torch, arguments.device, shape, torch.float32))
        ours_ms = statistics.median(run["median_ms"] for run in ours)
        row = {
            "shape": "{}x{}".format(*shape), "batch": shape[2], "form": ours[0]["form"],
            "precision": ours[0]["precision"], "ours_ms": ours_ms,
            "torch_bf16_ms": statistics.median(bf16) * 1e3,
            "torch_fp32_ms": statistics.median(fp32) * 1e3,
            "roofline": statistics.median(run["roofline"] for run in ours),
            "gemm_gflops": statistics.median(run["gemm_gflops"] for run in ours),
        }
        row["ratio_bf16"] = row["torch_bf16_ms"] / ours_ms
        row["ratio_fp32"] = row["torch_fp32_ms"] / ours_ms
        rows.append(row)
        if not arguments.json:
            if len(rows) == 1:
                print(f"{'shape':>10} {'batch':>5} {'form':>6} {'ours ms':>9} {'torch bf16':>10} "
                      f"{'ratio':>6} {'torch fp32':>10} {'ratio':>6} {'roofline':>8}")
            print(f"{row['shape']:>10} {row['batch']:5} {row['form']:>6} {ours_ms:9.2f} "
                  f"{row['torch_bf16_ms']:10.2f} {row['ratio_bf16']:6.2f} "
                  f"{row['torch_fp32_ms']:10.2f} {row['ratio_fp32']:6.2f} {row['roofline']:8.2f}",
                  flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
