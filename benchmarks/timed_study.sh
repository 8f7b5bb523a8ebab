#!/usr/bin/env bash
# A study on a GPU that is lent by the minute: for a limited time, several trainings at once.
#
#     benchmarks/timed_study.sh SECONDS FOLDER STUDY [OPTION...]
#
# FOLDER gets trainings.jsonl.gz: those of results/ and all that end in time, written while they do,
# so that it may be taken away at any moment; and at the end left.tar.00 to 03, at most 55 MB in
# pieces of 15 MB: the checkpoints of what was cut short, and the networks that others are fitted on,
# as far as there is room. `benchmarks/parcels.py keep FOLDER STUDY` takes them up at home.
#
# Runs lie in RUNS (build/timed-runs if it is not set): called again on the same machine, the study
# goes on there. On another machine it goes on with what lies in LEFT (build/parcels/left).
#
# Images come from build/data, made of build/parcels if they are not there. How many at once follows
# from STUDY's name; OPTIONs are those of `foveapool study` and count before it.
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: $0 SECONDS FOLDER STUDY [OPTION...]" >&2
    exit 2
fi
seconds=$1 folder=$2 study=$3
shift 3
began=$SECONDS
home=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
known=$folder/trainings.jsonl.gz runs=${RUNS:-$home/build/timed-runs}
left=${LEFT:-$home/build/parcels/left} python=${PYTHON:-python3}
export PYTHONPATH=$home/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
mkdir -p "$folder" "$runs/trainings"
[ -f "$known" ] || cp "$home/results/trainings.jsonl.gz" "$known"
if compgen -G "$left/left.tar.*" >/dev/null; then
    cat "$left"/left.tar.* | tar --extract --skip-old-files --directory "$runs/trainings"
fi
if compgen -G "$home/build/parcels/*-0/labels.npz" >/dev/null; then
    "$python" "$home/benchmarks/parcels.py" unpack
fi
[ ! -d "$home/build/data" ] || set -- --data-root "$home/build/data" "$@"
case $study in
*resnet18*) set -- --jobs 3 --compile "$@" ;;
*) set -- --jobs 7 "$@" ;;
esac

# Trainings at once take turns on a GPU without MPS. A daemon of its own: one that a killed call
# left behind may refuse its clients.
if command -v nvidia-cuda-mps-control >/dev/null; then
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
    CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    nvidia-cuda-mps-control -d
    trap 'echo quit | nvidia-cuda-mps-control || true' EXIT
fi

# Interrupted, a study keeps the last checkpoints and ends with 130; time that ran out is no fault.
code=0
rest=$("$python" -c "print(max(0.1, $seconds - $((SECONDS - began))))")
timeout --signal=INT --kill-after=20 "$rest" \
    "$python" -m foveapool study "$study" --runs "$runs" --known "$known" "$@" || code=$?
rm -f "$folder"/left.tar.* "$folder"/.lock-*
"$python" "$home/benchmarks/parcels.py" list-left "$runs" |
    tar --create --directory "$runs/trainings" --files-from - |
    split --bytes 15MB --numeric-suffixes - "$folder/left.tar."
if [ $code -eq 124 ]; then
    echo "$study: time is up after $seconds s; the same command goes on"
else
    exit $code
fi
