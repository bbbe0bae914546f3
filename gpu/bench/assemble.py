# SPDX-License-Identifier: Apache-2.0
"""Joins the checks and the timings of one run: assemble.py CHECKS BENCH HASH COMMIT OUT [TOOL=VERDICT...] [note=TEXT]"""
import json
import math
import pathlib
import re
import sys

checks, bench, sources, commit, out, *tools = sys.argv[1:]
rows = json.load(open(checks))
if not rows or any(r["verdict"] == "failed" for r in rows):
    sys.exit("assemble.py: a check failed or none ran; no evidence is written")

# The rows of one kernel, rule, family, shape and type are one entry: its worst ratio, and how many were compared.
worst, not_judged = {}, {}
for r in rows:
    key = tuple(r[k] for k in ("kernel", "rule", "family", "shape", "dtype"))
    w = worst.setdefault(key, {"ratio": 0.0, "verdict": r["verdict"], "compared": 0})
    if r["verdict"] in ("untrusted", "skipped"):
        not_judged[r["reason"]] = not_judged.get(r["reason"], 0) + 1
        continue
    w["compared"] += 1
    w["ratio"] = max(w["ratio"], r["ratio"])
    if w["verdict"] != "marginal":
        w["verdict"] = r["verdict"]
said = dict(t.split("=", 1) for t in tools)
note = said.pop("note", "")
keys = ("kernel", "rule", "family", "shape", "dtype")
measured = json.load(open(bench))
for row in measured["accuracy"]:  # JSON has no infinity
    for who in ("ours", "fla"):
        if row[who] is not None and not math.isfinite(row[who]):
            row[who] = "not finite"
evidence = {
    "device": measured["device"], "driver": measured["driver"], "commit": commit, "sources_sha256": sources,
    "note": note, "versions": measured.get("versions", {}), "sanitizer": said, "ceilings": measured["ceilings"],
    "not_judged": not_judged, "timings": measured["timings"], "accuracy": measured["accuracy"],
    "checks": [dict(zip(keys, k), ratio=float(f"{w['ratio']:.3g}"), verdict=w["verdict"], compared=w["compared"])
               for k, w in sorted(worst.items())],
}
path = pathlib.Path(out)
if path.suffix != ".json":
    path = path / (re.sub(r"[^A-Za-z0-9]+", "-", measured["device"]).strip("-").lower() + ".json")
# One row a line: the file can be read and compared.
lines = []
for key, value in evidence.items():
    if isinstance(value, list):
        body = ",\n".join("  " + json.dumps(v, allow_nan=False) for v in value)
        lines.append(f' {json.dumps(key)}: [\n{body}\n ]')
    else:
        lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
print(path)
