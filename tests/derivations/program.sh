#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# program.sh PROGRAM: the command line of deltaref-derive, its exit statuses and its JSON.
set -u
program=$1
failures=0

status() { # status EXPECTED ARGUMENT...
  local expected=$1 got=0 errors
  shift
  errors=$("$program" "$@" 2>&1 >/dev/null </dev/null) || got=$?
  ((got == expected)) || { echo "exit status $got, expected $expected: $*"; failures=$((failures + 1)); }
  ((expected != 2)) || { (($(wc -l <<<"$errors") == 1)) && [[ $errors == deltaref-derive:* ]]; } ||
    { echo "not one line of the program's own: $errors"; failures=$((failures + 1)); }
}

status 0
status 0 ut_transform
status 0 ut_transform --scalar gf61 --size C=8 --size d_k=5
status 0 ut_transform --seed 7 --step
status 2 no_such_derivation
status 2 ut_transform --size C
status 2 ut_transform --size C=0
status 2 ut_transform --size D=4
status 2 ut_transform --scalar float
status 2 --no-such-option
status 2 ut_transform --no-such-option
status 2 ut_transform --seed many
status 2 ut_transform --seed
status 2 ut_transform --seed -3
status 2 ut_transform --seed +3
status 2 ut_transform --size C=8x
status 2 F999
status 2 alpha
status 0 --help
status 0 --version

version=$("$program" --version)
[[ $version =~ ^deltaref-derive\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "no version: $version"; failures=$((failures + 1)); }
# The id of a formula stands for the derivations that claim it, as --coverage has them.
coverage=$(mktemp)
"$program" --coverage --json >"$coverage"
for id in F01 F84 D4 E17 C-one-solve; do
  "$program" "$id" --json | python3 -c '
import json, sys
names = [d["name"] for d in json.load(sys.stdin)["derivations"]]
claimed = {f["id"]: f["derivations"] for f in json.load(open(sys.argv[2]))["formulas"]}[sys.argv[1]]
assert sorted(names) == sorted(claimed), (sys.argv[1], names, claimed)' "$id" "$coverage" ||
    failures=$((failures + 1))
done
rm "$coverage"

"$program" q_delta_wy tracking --json | python3 -c '
import json, sys
names = [d["name"] for d in json.load(sys.stdin)["derivations"]]
assert names == ["q_delta_wy", "tracking"], names' || failures=$((failures + 1))
"$program" q_delta_wy --json | python3 -c '
import json, sys
d, = json.load(sys.stdin)["derivations"]
assert d["name"] == "q_delta_wy" and d["title"]
for c in d["claims"]:
    assert c["verdict"] == "holds" and c["scalars"] == ["rational", "gf61"], c
    assert c["kind"] != "EQ" or c["id"] == "F85" or 0 < c["probability"] < 1e-12, c
assert {"F82", "F83", "F85"} <= {c["id"] for c in d["claims"]}' || failures=$((failures + 1))

((failures == 0)) && echo "exit statuses and JSON: as expected"
exit $((failures > 0))
