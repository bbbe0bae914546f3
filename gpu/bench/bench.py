# SPDX-License-Identifier: Apache-2.0
"""Timings and accuracy of the kernels beside their peers, on the same inputs in the same process.

Ours are called through the C interface of libdeltaref_gpu.so, peers through Python; both are captured in a CUDA graph
first, so that only device time counts. Before each repetition the L2 cache is flushed. Median of many.
"""
import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time
from importlib import metadata

import torch

NEWEST = 7  # DELTAREF_NEWEST
UNSUPPORTED = 2  # DELTAREF_UNSUPPORTED
RULES = ["linear", "retnet", "mamba2", "delta", "gated_delta", "q_delta", "kda"]
BF16, FP16, FP32, FP64 = range(4)
TORCH = {BF16: torch.bfloat16, FP16: torch.float16, FP32: torch.float32, FP64: torch.float64}
NAMES = {BF16: "bf16", FP16: "fp16", FP32: "fp32", FP64: "fp64"}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_int64 * 3)]

    @staticmethod
    def of(x):
        return Tensor() if x is None else Tensor(x.data_ptr(), (ctypes.c_int64 * 3)(*x.stride()[:3]))


class Problem(ctypes.Structure):  # deltaref_gpu_problem
    _fields_ = (
        [(n, ctypes.c_int32) for n in ("rule", "dtype", "gate", "state_layout", "version", "qk_l2norm", "rows", "segments")]
        + [(n, ctypes.c_int64) for n in ("B", "T", "H", "HV", "d_k", "d_v", "sequences")]
        + [("cu_seqlens", ctypes.c_void_p), ("scale", ctypes.c_double), ("l2norm_eps", ctypes.c_double)]
        + [(n, Tensor) for n in ("q", "k", "v", "o", "g", "beta", "lam")]
        + [("initial_state", ctypes.c_void_p), ("final_state", ctypes.c_void_p), ("trace", ctypes.c_void_p * 10)]
    )


class Device(ctypes.Structure):
    _fields_ = [("compute_capability", ctypes.c_int32), ("multiprocessors", ctypes.c_int32), ("shared", ctypes.c_int64)]


class Plan(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int32), ("chunk", ctypes.c_int32), ("rows", ctypes.c_int32),
                ("stages", ctypes.c_int32), ("chains", ctypes.c_int32), ("producers", ctypes.c_int32),
                ("clusters", ctypes.c_int32), ("segments", ctypes.c_int32), ("slots", ctypes.c_int64),
                ("workspace", ctypes.c_uint64), ("reason", ctypes.c_char * 240)]


class Unsupported(RuntimeError):
    pass


class Kernels:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.deltaref_gpu_last_error.restype = ctypes.c_char_p
        self.device = Device()
        self.require(self.lib.deltaref_gpu_device(ctypes.byref(self.device), None, ctypes.c_size_t(0)))

    def require(self, status):
        if status:
            raise (Unsupported if status == UNSUPPORTED else RuntimeError)(self.lib.deltaref_gpu_last_error().decode())

    def call(self, x, version=0, rows=0, segments=0, stream=None):
        """A function that launches, on PyTorch's current stream if none is given; its result is
        (o, final state [B, HV, d_v, d_k])."""
        q, k, v = x["q"], x["k"], x["v"]
        B, T, H, d_k = q.shape
        HV, d_v = v.shape[2:]
        o = torch.empty_like(v)
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        S = torch.empty(B, HV, d_v, d_k, dtype=wide, device="cuda")
        o.fill_(float("nan")), S.fill_(float("nan"))
        p = Problem(rule=RULES.index(x["rule"]), dtype={t: d for d, t in TORCH.items()}[q.dtype], gate=0, state_layout=1,
                    version=version, rows=rows, segments=segments, B=B, T=T, H=H, HV=HV, d_k=d_k, d_v=d_v,
                    scale=x["scale"], q=Tensor.of(q), k=Tensor.of(k), v=Tensor.of(v), o=Tensor.of(o),
                    g=Tensor.of(x["g"]), beta=Tensor.of(x["beta"]), lam=Tensor.of(x["lam"]), final_state=S.data_ptr())
        if x["S0"] is not None:
            p.initial_state = x["S0"].data_ptr()
        plan = Plan()
        self.require(self.lib.deltaref_gpu_plan(ctypes.byref(p), ctypes.byref(self.device), ctypes.byref(plan)))
        workspace = torch.empty(max(plan.workspace, 1), dtype=torch.uint8, device="cuda")

        def launch():
            on = torch.cuda.current_stream().cuda_stream if stream is None else stream
            self.require(self.lib.deltaref_gpu_run(ctypes.byref(p), ctypes.c_void_p(workspace.data_ptr()),
                                                   ctypes.c_size_t(workspace.numel()), ctypes.c_void_p(on)))
            return o, S

        launch.keep = (x, o, S, workspace, p)
        launch.plan = plan
        return launch

    def planned(self, x):
        """The version that the planner takes."""
        return self.call(x).plan.version

    def serving(self, x, versions):
        """Those versions that serve the problem when they are asked for by name; v6 only where a cut pays."""
        found = []
        for version in versions:
            try:
                self.call(x, version)
                found.append(version)
            except Unsupported:
                pass
        return found


def inputs(rule, B, T, H, HV, d_k, d_v, gates="typical", dtype=BF16, seed=0, initial=True):
    """Random inputs; a seed fixes them. Everything is drawn in fp64 and rounded once to the type that the kernels get."""
    r = torch.Generator(device="cuda").manual_seed(seed)
    normal = lambda *s: torch.randn(*s, generator=r, device="cuda", dtype=torch.float64)
    uniform = lambda low, high, *s: low + (high - low) * torch.rand(*s, generator=r, device="cuda", dtype=torch.float64)
    unit = lambda x: x / x.norm(dim=-1, keepdim=True)
    low, high = {"typical": (0.001, 0.3), "slow": (1e-4, 1e-2), "strong": (2.0, 8.0), "repeated": (1e-4, 1e-2),
                 "resets": (0.001, 0.3), "beta2": (0.001, 0.3), "decode": (0.001, 0.3)}[gates]
    wide = (B, T, HV, d_k) if rule == "kda" else (B, T, HV)
    g = -torch.exp(uniform(math.log(low), math.log(high), *wide)) if rule not in ("linear", "delta") else None
    if gates == "resets" and g is not None:
        g = torch.where(uniform(0, 1, *wide) < 0.05, torch.tensor(-math.inf, device="cuda", dtype=torch.float64), g)
    q, k = unit(normal(B, T, H, d_k)), unit(normal(B, T, H, d_k))
    beta = uniform(0, 2 if gates == "beta2" else 1, B, T, HV) if rule in RULES[3:] else None
    if gates == "repeated":
        k = k[:, :1].expand(B, T, H, d_k).contiguous()
        beta = None if beta is None else torch.ones_like(beta)
    lam = uniform(0.2, 0.5, B, T, HV) if rule == "q_delta" else None
    S0 = normal(B, HV, d_v, d_k) if initial else None
    to = lambda x, t: None if x is None else x.to(t)
    t = TORCH[dtype]
    f = torch.float64 if dtype == FP64 else torch.float32
    return {"rule": rule, "q": to(q, t), "k": to(k, t), "v": to(normal(B, T, HV, d_v), t), "g": to(g, f),
            "beta": to(beta, f), "lam": to(lam, f), "S0": to(S0, f), "scale": d_k**-0.5}


def exactly(kernels, x):
    """v1 in fp64 on the same numbers; v1 itself is held against the CPU reference by the check program."""
    wide = {n: (y.double() if isinstance(y, torch.Tensor) else y) for n, y in x.items()}
    return kernels.call(wide, version=1)()


def fla_call(x):
    """FLA's operation for that rule, or None. Its state is stored [d_k, d_v]."""
    from fla.ops.delta_rule import chunk_delta_rule
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.kda import chunk_kda
    from fla.ops.simple_gla import chunk_simple_gla

    S0 = None if x["S0"] is None else x["S0"].transpose(-1, -2).contiguous()
    common = dict(scale=x["scale"], initial_state=S0, output_final_state=True)
    bf = lambda y: None if y is None else y.to(x["q"].dtype)
    if x["rule"] == "gated_delta":
        return lambda: chunk_gated_delta_rule(x["q"], x["k"], x["v"], x["g"], x["beta"], **common)
    if x["rule"] == "kda":
        return lambda: chunk_kda(x["q"], x["k"], x["v"], x["g"], x["beta"], **common)
    if x["rule"] == "delta":
        return lambda: chunk_delta_rule(x["q"], x["k"], x["v"], bf(x["beta"]), **common)
    if x["rule"] in ("linear", "retnet", "mamba2"):
        return lambda: chunk_simple_gla(x["q"], x["k"], x["v"], x["g"], **common)
    return None


def torch_loop(x):
    """The recurrence as PyTorch users write it, a token at a time in fp32."""
    q, k, v = (x[n].float() for n in "qkv")

    def run():
        S = x["S0"].clone()
        out = []
        for t in range(q.shape[1]):
            S = S * x["g"][:, t].exp()[..., None, None]
            e = v[:, t] - torch.einsum("bhvk,bhk->bhv", S, k[:, t])
            S = S + torch.einsum("bhv,bhk->bhvk", x["beta"][:, t, :, None] * e, k[:, t])
            out.append(x["scale"] * torch.einsum("bhvk,bhk->bhv", S, q[:, t]))
        return torch.stack(out, 1), S

    return run


FLUSH = None


def milliseconds(f, repeats=15, graph=True):
    """Device time of f, cold L2, median."""
    global FLUSH
    FLUSH = torch.empty(256 << 20, dtype=torch.uint8, device="cuda") if FLUSH is None else FLUSH
    with torch.no_grad():
        for _ in range(3):
            f()
        torch.cuda.synchronize()
        replay = f
        if graph:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                f()
            replay = captured.replay
        replay()
        times = []
        for _ in range(repeats):
            FLUSH.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            replay()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def host_milliseconds(f, repeats=200):
    """The whole call from the host, until its result is there, median."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        f()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def error(got, want):
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm()).item() if torch.isfinite(got).all() else math.inf


def ceilings():
    a = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    b = torch.empty_like(a)
    copy = milliseconds(lambda: b.copy_(a), 9, graph=False)
    m, n = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = milliseconds(lambda: m @ n, 9)
    return {"copy_tbps": 2 * a.numel() * 2 / copy / 1e9, "bf16_tflops": 2 * 8192**3 / product / 1e9}


SHAPES = [(1, 8192, 16), (1, 8192, 64), (8, 2048, 16), (1, 65536, 16), (2, 16384, 32), (16, 2048, 32)]
FEW_HEADS = [(1, 16384, 2), (1, 65536, 2), (1, 65536, 4), (1, 65536, 8)]  # what v6 is for


def accuracy(kernels, peers):
    rows = []
    for rule in RULES:
        for gates in ("typical", "slow", "strong", "repeated", "resets", "beta2"):
            if rule in RULES[:3] and gates in ("beta2", "repeated") or rule in ("linear", "delta") and gates in ("slow", "strong", "resets"):
                continue  # the same inputs as another row
            x = inputs(rule, 2, 1000, 16, 16, 128, 128, gates)  # as many heads as a timed shape: one tuning of the peer
            want_o, want_S = exactly(kernels, x)
            fla = {}
            if peers:
                try:
                    call = fla_call(x)
                    if call:
                        with torch.no_grad():
                            fo, fS = call()[:2]
                        fla = {"o": error(fo, want_o), "final_state": error(fS.transpose(-1, -2), want_S)}
                except Exception as e:  # a peer that fails is reported, not hidden
                    print("FLA", rule, gates, type(e).__name__, str(e)[:200], file=sys.stderr)
            for version in kernels.serving(x, (5, 7)) or [kernels.planned(x)]:
                o, S = kernels.call(x, version)()
                for output, got, want in (("o", o, want_o), ("final_state", S, want_S)):
                    rows.append({"op": rule, "gates": gates, "output": output, "kernel": f"v{version}",
                                 "ours": error(got, want), "fla": fla.get(output)})
    x = inputs("gated_delta", *FEW_HEADS[0], FEW_HEADS[0][2], 128, 128)  # as it is planned: in segments
    call = kernels.call(x)
    for output, got, want in zip(("o", "final_state"), call(), exactly(kernels, x)):
        rows.append({"op": "gated_delta", "gates": "typical, few heads", "output": output,
                     "kernel": f"v{call.plan.version}", "ours": error(got, want), "fla": None})
    return rows


def compile_peers(library, heads):
    """FLA compiles each operation for each number of heads, a minute each: all at once, before anything is timed. What is
    compiled is kept on disk; what is tuned is not, for others use the device meanwhile: it is tuned again where it is timed."""
    wanted = [("gated_delta", h) for h in heads] + [(rule, 16) for rule in ("delta", "mamba2", "kda") if 16 in heads]
    untuned = os.environ | {"FLA_CACHE_RESULTS": "0"}
    started = [subprocess.Popen([sys.executable, __file__, library, "--compile-peer", f"{rule},{h}"], env=untuned)
               for rule, h in wanted]
    for process in started:
        process.wait()


def timings(kernels, heads, quick, done):
    """The table in two parts, what is wanted most first; done(rows) is called after each row. FLA is timed for these numbers
    of heads."""
    rows = []

    def peer(name, call, into, **options):
        try:
            if call:
                into[name] = milliseconds(call, **options)
        except Exception as e:  # a peer that fails is reported, not hidden
            print("peer", name, type(e).__name__, str(e)[:200], file=sys.stderr)
        return into

    def row(op, shape, version, x, peers, what="forward", repeats=15, clock=milliseconds, stream=None):
        B, T, H = shape
        ms = clock(kernels.call(x, version, stream=stream), repeats)
        rows.append({"op": op, "pass": what, "B": B, "T": T, "H": H, "HV": H, "d_k": 128, "d_v": 128, "dtype": "bf16",
                     "kernel": f"v{version}", "ms": ms, "peers": peers})
        print(f"{op:12} {what:8} {str(shape):16} v{version} {ms:9.4f} ms  " +
              "  ".join(f"{n} {t:.4f}" for n, t in peers.items()), flush=True)
        done(rows)

    def fla(x, shape):
        return peer("fla", fla_call(x), {}) if shape[2] in heads else {}

    for shape in SHAPES:
        B, T, H = shape
        x = inputs("gated_delta", B, T, H, H, 128, 128)
        peers = fla(x, shape)
        for version in kernels.serving(x, range(4, NEWEST + 1)):
            row("gated_delta", shape, version, x, peers)
            row("q_delta", shape, version, inputs("q_delta", B, T, H, H, 128, 128), {})
    for shape in FEW_HEADS:
        B, T, H = shape
        x = inputs("gated_delta", B, T, H, H, 128, 128)
        for version in kernels.serving(x, (5, 6)):
            row("gated_delta", shape, version, x, {}, "few")
    for B, H in ((32, 16), (256, 16), (256, 32)):
        x = inputs("gated_delta", B, 1, H, H, 128, 128, "decode")
        peers = {}
        if heads:
            from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

            peer("fla", lambda: fused_recurrent_gated_delta_rule(
                x["q"], x["k"], x["v"], x["g"], beta=x["beta"], scale=x["scale"], initial_state=x["S0"],
                output_final_state=True, state_v_first=True), peers)
        row("gated_delta", (B, 1, H), 2, x, peers, "decode")
    yield  # what is wanted most is there
    if quick:
        return
    for shape in SHAPES[:3]:
        x = inputs("gated_delta", shape[0], shape[1], shape[2], shape[2], 128, 128)
        loop = peer("torch_loop", torch_loop(x), {}, repeats=1, graph=False) if shape == SHAPES[2] else {}
        for version in (1, 2, 3):
            row("gated_delta", shape, version, x, loop if version == 1 else {}, repeats=3)
    for rule in ("delta", "mamba2", "kda"):
        for shape in SHAPES:
            x = inputs(rule, shape[0], shape[1], shape[2], shape[2], 128, 128)
            peers = fla(x, shape) if shape[2] == 16 else {}
            for version in kernels.serving(x, range(4, NEWEST + 1)):
                row(rule, shape, version, x, peers)
    short = inputs("gated_delta", 1, 128, 16, 16, 128, 128)
    whole = kernels.planned(short)  # too few heads and tokens for v6 or v7
    for T in (1 << 14, 1 << 16, 1 << 18, 1 << 20):  # time per token must not grow with the sequence
        row("gated_delta", (1, T, 2), whole, inputs("gated_delta", 1, T, 2, 2, 128, 128), {}, "long", repeats=5)
    # Called as by a program that holds its stream; beside it a fill of 64 numbers by PyTorch, and a synchronisation alone.
    few = torch.empty(64, device="cuda")
    beside = {"on the device": milliseconds(kernels.call(short, whole)), "a fill": host_milliseconds(few.zero_),
              "a fill, on the device": milliseconds(few.zero_), "a synchronisation": host_milliseconds(lambda: None)}
    row("gated_delta", (1, 128, 16), whole, short, beside, "host", repeats=200, clock=host_milliseconds, stream=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library", help="libdeltaref_gpu.so")
    parser.add_argument("--out", help="write JSON here")
    parser.add_argument("--quick", action="store_true", help="fewer rules and versions")
    parser.add_argument("--peer-heads", default="16,64,32", help="numbers of heads that FLA is timed at; empty: none")
    parser.add_argument("--compile-peers", action="store_true", help="only let FLA compile what will be timed")
    parser.add_argument("--compile-peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    heads = [int(h) for h in args.peer_heads.split(",") if h]
    if args.compile_peers:
        return compile_peers(args.library, heads)
    if args.compile_peer:
        rule, h = args.compile_peer.split(",")
        with torch.no_grad():
            fla_call(inputs(rule, 1, 2048, int(h), int(h), 128, 128))()
            torch.cuda.synchronize()
        return None
    kernels = Kernels(args.library)
    if heads:
        try:
            import fla  # noqa: F401
        except ImportError as e:
            heads = []
            print(f"FLA is not installed ({e}): no peer is timed", file=sys.stderr)
    name, driver = subprocess.check_output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"],
                                           text=True).strip().split(", ")
    versions = {m: metadata.version(p) for m, p in (("PyTorch", "torch"), ("Triton", "triton"), ("FLA", "flash-linear-attention"))
                if heads or m == "PyTorch"}
    out = {"device": name, "driver": driver, "versions": versions, "ceilings": ceilings()}

    def write():
        if args.out:
            with open(args.out, "w") as f:
                json.dump(out, f, indent=1)

    def done(rows):
        out["timings"] = rows
        write()

    print(json.dumps(out["ceilings"]), flush=True)
    table = timings(kernels, heads, args.quick, done)
    next(table)
    out["accuracy"] = accuracy(kernels, bool(heads))
    write()
    for r in out["accuracy"]:
        print(f"{r['op']:12} {r['gates']:9} {r['output']:12} {r['kernel']} {r['ours']:.3e}  fla " +
              ("-" if r["fla"] is None else f"{r['fla']:.3e}  {r['ours'] / r['fla']:.3f}"))
    for _ in table:
        pass
    write()


if __name__ == "__main__":
    main()
