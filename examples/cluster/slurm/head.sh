#!/usr/bin/env bash
#SBATCH --job-name=bestarm-head
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --open-mode=append
#SBATCH --output=logs/head.log
# The run itself; needs no GPU. When Slurm takes its place away, it stops with exit code 130, is queued
# again, and goes on where it was. Submitted by submit.sh, in whose folder it runs.
set -uo pipefail
./go.sh &
run=$!
trap 'kill -TERM "$run"' TERM
wait "$run"
code=$?
while kill -0 "$run" 2>/dev/null; do # the signal ended the first wait, not the run
    wait "$run"
    code=$?
done
case $code in
    130 | 143) scontrol requeue "$SLURM_JOB_ID" ;; # 143: it was still waiting for a server
    *) scancel "$SERVERS" ;;
esac
exit "$code"
