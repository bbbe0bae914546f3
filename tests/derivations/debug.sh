#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# debug.sh SUBJECT: drives gdb over the subject, live and on a core dump, and looks at what it prints.
set -u
subject=$1
root=$(dirname "$(readlink -f "$0")")/../..
command -v gdb >/dev/null || { echo "skipped: gdb is not installed"; exit 77; }
gdb -batch -ex 'python 1' 2>&1 | grep -q 'not supported' && { echo "skipped: this gdb has no Python"; exit 77; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$root" || exit 1
failures=0

expect() { # expect FILE TEXT
  grep -qF -- "$2" "$1" || { echo "missing in $(basename "$1"): $2"; failures=$((failures + 1)); }
}

# Every scalar, in a frame that is stopped inside.
gdb -batch -nx -x derivations/debug/gdbinit -ex 'break all_scalars_ready' -ex run -ex up \
  -ex 'print d' -ex 'print q' -ex 'print b' -ex 'print g' -ex 'print x' -ex 'print u' -ex 'print w' -ex 'print m' \
  -ex 'print h' -ex 'print f' -ex 'print vec' -ex 'print row_major' -ex 'print fixed' "$subject" >"$work/scalars" 2>&1
if grep -q 'ptrace: Operation not permitted\|Could not trace' "$work/scalars"; then
  echo "skipped: this machine does not allow tracing"
  exit 77
fi
expect "$work/scalars" '[2 x 3] over double'
expect "$work/scalars" '1  -0.5  1e-09'
expect "$work/scalars" '[2 x 2] over Q'
expect "$work/scalars" '123456789012345678901234567890/1000000007'
expect "$work/scalars" '[2] over Q:  1/2  3'
expect "$work/scalars" '1/3  -123456789012345678901234567890/1000000007'
expect "$work/scalars" '2305843009213693950  12'
expect "$work/scalars" '5  14 {deg 2}'
expect "$work/scalars" '2 + 3 eps'
expect "$work/scalars" '0.33333333333333333333333333333333  -2.5'
expect "$work/scalars" '0.33333333333333333333333333333333333333333333333333  -1024  1e-30'
expect "$work/scalars" '0x3f80 1  0xbdcd -0.100097656'
expect "$work/scalars" '0x3e00 1.5'

# Claims: the first stop, one formula only, and a core dump taken there.
gdb -batch -nx -x derivations/debug/gdbinit -ex run -ex 'break-at-claim F38' -ex continue -ex 'print solved' -ex next \
  -ex "generate-core-file $work/core" "$subject" >"$work/claims" 2>&1
expect "$work/claims" 'F37  holds  (I + L) W = B K'
expect "$work/claims" 'at ut_transform.cpp:'
expect "$work/claims" 'K = [4 x 3] over Q'
expect "$work/claims" 'W = [4 x 3] over Q'
expect "$work/claims" 'F38  holds  forward substitution returns W'

expect "$work/claims" '$1 = [4 x 3] over Q'
expect "$work/claims" 'product_of_diagonal'

gdb -batch -nx -x derivations/debug/gdbinit -ex claim "$subject" "$work/core" >"$work/dump" 2>&1
expect "$work/dump" 'at ut_transform.cpp:'
expect "$work/dump" 'L = [4 x 4] over Q'

# Every claim stops in the derivation, whatever its kind.
claims=$(grep -cE '^ *d\.(equal|differs|less|at_most|near|holds|shape)\(' derivations/ut_transform.cpp)
continues=()
for ((i = 1; i < claims; ++i)); do continues+=(-ex continue); done
gdb -batch -nx -x derivations/debug/gdbinit -ex run "${continues[@]}" "$subject" >"$work/all" 2>&1
if grep -q 'no derivation is running' "$work/all" || (($(grep -c 'Breakpoint -.* in delta::ut_transform' "$work/all") < claims)); then
  echo "a claim did not stop in the derivation"
  failures=$((failures + 1))
fi

# Stepping over the lines of a derivation, into whatever is called, never lands in a library.
gdb -batch -nx -x derivations/debug/gdbinit -ex delete -ex 'tbreak ut_transform' -ex run \
  -ex step -ex bt -ex step -ex bt -ex step -ex bt -ex step -ex bt "$subject" >"$work/steps" 2>&1
if grep -E '^#0 +(0x[0-9a-f]+ in )?(Eigen|boost|std)::' "$work/steps"; then
  echo "stepped into a library"
  failures=$((failures + 1))
fi
expect "$work/steps" 'ut_transform'

((failures == 0)) || { echo; cat "$work/scalars" "$work/claims" "$work/dump" "$work/all" "$work/steps"; exit 1; }
echo "printers, claims, core dump and stepping: as expected"
