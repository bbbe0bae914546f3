#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is said about the kernels, from one run: checks, sanitizers, timings, then evidence/<device>.json.
# usage: evidence.sh [--hash] [--binaries DIRECTORY] [--out FILE] [--work DIRECTORY] [--no-sanitizer]
#   --hash          only prints the hash of the sources
#   --binaries      deltaref-gpu and libdeltaref_gpu.so, built here or elsewhere (a static CUDA runtime makes them portable)
#   --out           where the evidence goes, instead of evidence/<device>.json
#   --work          keeps what is finished; a later call with the same binaries goes on from there
#   --no-sanitizer  leaves out memcheck, racecheck and initcheck
# No figure is written unless every check passed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
called=${DELTAREF_CALLED_AS:+$DELTAREF_CALLED_AS gpu} called=${called:-evidence.sh}
binaries=$here/../build/release out='' work='' sanitizer=1
while (($#)); do
  case $1 in
    --binaries | --out | --work) (($# > 1)) || { echo "evidence.sh: $1 needs a path behind it" >&2 && exit 2; } ;;&
    --help) sed -nE '3,/^#   --no/s/^# ?//p' "$0" | sed "s|evidence.sh|$called|" && exit 0 ;;
    --hash) exec "$here/hash.sh" ;;
    --binaries) binaries=$2 && shift ;;
    --out) out=$2 && shift ;;
    --work) work=$2 && shift ;;
    --no-sanitizer) sanitizer=0 ;;
    *) echo "evidence.sh: unknown option '$1'; expected --help, --hash, --binaries, --out, --work or --no-sanitizer" >&2 && exit 2 ;;
  esac
  shift
done
find_one() { find "$binaries" -name "$1" -type f 2>/dev/null | head -n 1 || true; }
program=$(find_one deltaref-gpu) library=$(find_one libdeltaref_gpu.so)
if [[ -z $program || -z $library ]]; then
  echo "evidence.sh: no deltaref-gpu and libdeltaref_gpu.so under $binaries; build them first" >&2
  exit 2
fi
own=''
if [[ -n $work ]]; then mkdir -p "$work"; else own=$(mktemp -d) && work=$own; fi
# What runs beside ends with this, however it ends.
trap 'kill $(jobs -p) 2>/dev/null || true; [[ -z $own ]] || rm -rf "$own"' EXIT
# A stage is finished for these binaries and for no others.
stamp=$(cat "$program" "$library" | sha256sum)
finished() { [[ $(cat "$work/$1.finished" 2>/dev/null) == "$stamp" ]]; }
finish() { echo "$stamp" >"$work/$1.finished"; }

python=$(command -v python3 || true)
[[ -n $python ]] && "$python" -c 'import torch' 2>/dev/null || python=
# The peers compile for minutes; that goes on while the kernels are checked, and ends before anything is timed.
peers=
if [[ -n $python ]] && "$python" -c 'import fla' 2>/dev/null; then
  "$python" "$here/bench/bench.py" "$library" --compile-peers >"$work/peers.log" 2>&1 &
  peers=$!
fi

# The sanitizers run beside the checks: neither is timed.
tools=() sanitizers=()
if ((sanitizer)) && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    if finished "$tool"; then
      tools+=("$tool=passed")
      continue
    fi
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" --quick >"$work/$tool.log" 2>&1 &
    sanitizers+=("$tool=$!")
  done
else
  echo "compute-sanitizer: not run"
fi
status=0
if ! finished checks; then
  "$program" --out "$work/checks.json" || status=$?
  ((status != 2)) || exit 2 # the program has said why nothing can run here
  ((status)) || finish checks
fi
for started in "${sanitizers[@]}"; do
  tool=${started%=*}
  if wait "${started#*=}"; then
    echo "compute-sanitizer $tool: clean"
    tools+=("$tool=passed") && finish "$tool"
  else
    echo "compute-sanitizer $tool: not clean"
    grep -m 20 -E '=========|FAIL' "$work/$tool.log" || true
    tools+=("$tool=failed") status=1
  fi
done
if ((status)); then
  echo "evidence.sh: a check is red, so nothing is timed" >&2
  exit 1
fi

if [[ -z $python ]]; then
  echo "evidence.sh: all checks passed; no PyTorch here, so nothing is timed and no evidence is written" >&2
  exit 0
fi
[[ -z $peers ]] || wait "$peers" || true # what failed there fails again where it is timed, and is said
if ! finished bench; then
  "$python" "$here/bench/bench.py" "$library" --out "$work/bench.json"
  finish bench
fi
commit=$(git -C "$here" rev-parse --short=12 HEAD 2>/dev/null || cat "$binaries/commit" 2>/dev/null || echo unknown)
"$python" "$here/bench/assemble.py" "$work/checks.json" "$work/bench.json" "$("$here/hash.sh")" "$commit" \
  "${out:-$here/evidence}" "${tools[@]}"
