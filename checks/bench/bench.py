# SPDX-License-Identifier: Apache-2.0
"""Times deltaref's forms beside PyTorch's in one run. The gated delta rule in PyTorch, as one writes it there: the
token loop and the chunk form (W, U~, Z), each at the thread count that is fastest for it."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    torch = None


def recurrent(q, k, v, alpha, beta):
    """q, k [H, T, d_k], v [H, T, d_v], alpha, beta [H, T] -> o [H, T, d_v]; the state is [H, d_v, d_k]."""
    H, T, d_k = k.shape
    S = torch.zeros(H, v.shape[-1], d_k, dtype=q.dtype)
    o = torch.empty_like(v)
    for t in range(T):
        S = S * alpha[:, t, None, None]
        error = v[:, t] - torch.bmm(S, k[:, t, :, None])[..., 0]
        S = torch.baddbmm(S, (beta[:, t, None] * error)[:, :, None], k[:, t, None, :])
        o[:, t] = torch.bmm(S, q[:, t, :, None])[..., 0]
    return o


def chunkwise(q, k, v, alpha, beta, C=64):
    """The same function by chunks of C tokens: both triangular systems for all chunks at once, then a loop over chunks."""
    H, T, d_k = k.shape
    N = T // C
    q, k, v = (x.reshape(H, N, C, -1) for x in (q, k, v))
    alpha, beta = alpha.reshape(H, N, C), beta.reshape(H, N, C)
    g = alpha.log().cumsum(-1)
    gamma = g.exp()
    ratio = (g[..., :, None] - g[..., None, :]).tril().exp().tril()          # H_ij
    identity = torch.eye(C, dtype=q.dtype)
    gram = beta[..., None] * (k @ k.transpose(-1, -2))
    L, L_g = gram.tril(-1), (gram * ratio).tril(-1)
    W = torch.linalg.solve_triangular(identity + L, beta[..., None] * k, upper=False, unitriangular=True)
    U = torch.linalg.solve_triangular(identity + L_g, beta[..., None] * v, upper=False, unitriangular=True)
    scores = (q @ k.transpose(-1, -2)) * ratio
    k_out = (gamma[..., -1:] / gamma)[..., None] * k
    S = torch.zeros(H, v.shape[-1], d_k, dtype=q.dtype)
    o = torch.empty_like(v)
    for n in range(N):
        Z = U[:, n] - gamma[:, n, :, None] * (W[:, n] @ S.transpose(-1, -2))
        o[:, n] = gamma[:, n, :, None] * (q[:, n] @ S.transpose(-1, -2)) + scores[:, n] @ Z
        S = gamma[:, n, -1, None, None] * S + Z.transpose(-1, -2) @ k_out[:, n]
    return o.reshape(H, T, -1)


def median_time(f, repeats):
    f()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def torch_seconds(shape, repeats):
    """Median seconds of both forms, each at the thread count that is fastest: {form: (seconds, threads)}."""
    H, T, d = shape
    torch.manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(H, T, d, dtype=torch.float64), dim=-1) for _ in range(2))
    v = torch.randn(H, T, d, dtype=torch.float64)
    alpha, beta = 0.9 + 0.1 * torch.rand(H, T, dtype=torch.float64), torch.rand(H, T, dtype=torch.float64)
    difference = (recurrent(q, k, v, alpha, beta) - chunkwise(q, k, v, alpha, beta)).abs().max().item()
    if not difference < 1e-12:
        sys.exit(f"bench: the two forms of the peer differ by {difference}; no timing is reported")
    best = {}
    for form in (recurrent, chunkwise):
        for threads in range(1, (os.cpu_count() or 1) + 1):
            torch.set_num_threads(threads)
            seconds = median_time(lambda: form(q, k, v, alpha, beta), repeats)
            best[form.__name__] = min(best.get(form.__name__, (seconds, threads)), (seconds, threads))
    return best


def main():
    parser = argparse.ArgumentParser(description="Gated delta rule in double on the CPU: our forms beside PyTorch's.")
    parser.add_argument("program", help="the built deltaref_bench")
    parser.add_argument("--repeats", type=int, default=5)
    a = parser.parse_args()
    if a.repeats < 1:
        print(f"deltaref: bench: expected --repeats of at least 1, got {a.repeats}", file=sys.stderr)
        return 2

    ours = json.loads(subprocess.run([a.program, str(a.repeats)], check=True, stdout=subprocess.PIPE).stdout)
    theirs = torch_seconds((ours["H"], ours["T"], ours["d"]), a.repeats) if torch else {}
    print(f"gated_delta forward, double, T {ours['T']}, H {ours['H']}, d {ours['d']}: median of {a.repeats}, ms")
    print(f"{'form':12}{'deltaref':>10}{'PyTorch':>10}{'times':>8}")
    for form, seconds in ours["seconds"].items():
        line = f"{form:12}{1e3 * seconds:10.1f}"
        if form in theirs:
            line += f"{1e3 * theirs[form][0]:10.1f}{theirs[form][0] / seconds:8.1f}   ({theirs[form][1]} of {os.cpu_count()} threads)"
        print(line)
    if torch:
        blas = os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3")
        print(f"PyTorch {torch.__version__}, BLAS {blas}; deltaref on {ours['threads']} threads")
    else:
        print("PyTorch is not installed: no peer was timed (Debian: apt-get install python3-torch)")


if __name__ == "__main__":
    sys.exit(main())
