#!/usr/bin/env bash
# A study on a GPU that is lent by the minute: for a limited time, several trainings at once.
#
#     benchmarks/timed_study.sh SECONDS FOLDER STUDY [OPTION...]
#
# FOLDER gets trainings.jsonl.gz: those of results/ and all that end in time, written while they do,
# so that it may be taken away at any moment; and at the end fits.tar.00 and so on, pieces of 15 MB
# with the scatter and the operators, so that no baseline is trained again for its maps. Called
# again with the same FOLDER, on another machine too, the study goes on.
#
# Runs lie in RUNS (build/timed-runs if it is not set), with the checkpoints of what was not
# finished. OPTIONs are those of `foveapool study`, such as --jobs 7 --compile --data-root DATA.
# At home, `make study STUDY=...` with FOVEAPOOL_KNOWN=FOLDER/trainings.jsonl.gz fills the tables.
set -euo pipefail

if [ $# -lt 3 ]; then
    echo "usage: $0 SECONDS FOLDER STUDY [OPTION...]" >&2
    exit 2
fi
seconds=$1 folder=$2 study=$3
shift 3
home=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
known=$folder/trainings.jsonl.gz runs=${RUNS:-$home/build/timed-runs}
mkdir -p "$folder" "$runs/trainings"
[ -f "$known" ] || cp "$home/results/trainings.jsonl.gz" "$known"
if compgen -G "$folder/fits.tar.*" >/dev/null; then
    cat "$folder"/fits.tar.* | tar --extract --skip-old-files --directory "$runs/trainings"
fi
export PYTHONPATH=$home/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1

# Trainings at once take turns on a GPU without MPS. A daemon of its own: one that a killed call
# left behind may refuse its clients.
if command -v nvidia-cuda-mps-control >/dev/null; then
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
    CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    nvidia-cuda-mps-control -d
    trap 'echo quit | nvidia-cuda-mps-control || true' EXIT
fi

keep_fits() {
    rm -f "$folder"/fits.tar.*
    (cd "$runs/trainings" && find . -name 'scatter-*' -o -name 'operator-*') |
        tar --create --directory "$runs/trainings" --files-from - |
        split --bytes 15MB --numeric-suffixes - "$folder/fits.tar."
}

# Interrupted, a study keeps the last checkpoints and ends with 130; time that ran out is no fault.
code=0
timeout --signal=INT --kill-after=20 "$seconds" "${PYTHON:-python3}" -m foveapool study "$study" \
    --runs "$runs" --known "$known" "$@" || code=$?
keep_fits
if [ $code -eq 124 ]; then
    echo "$study: time is up after $seconds s; the same command goes on"
else
    exit $code
fi
