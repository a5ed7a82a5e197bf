#!/usr/bin/env bash
#SBATCH --job-name=bestarm-server
#SBATCH --array=0-3
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=08:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
#SBATCH --open-mode=append
#SBATCH --output=logs/server-%a.log
# One vLLM server for each task of the array. It writes its address into endpoints.txt once it answers,
# and takes it out when it ends. Submitted by submit.sh, in whose folder it runs.
set -euo pipefail
. ./key.sh
port=$((${PORT:-8000} + SLURM_ARRAY_TASK_ID)) # tasks may share a machine
address="http://$(hostname -f):$port/v1"

# Put our address into the list, or take it out. The run reads the list at any time: it is replaced whole.
list() {
    (
        flock 9
        {
            grep -vxF "$address" endpoints.txt || true
            if [ "$1" = in ]; then echo "$address"; fi
        } >endpoints.next
        mv endpoints.next endpoints.txt
    ) 9>endpoints.lock
}

leave() {
    list out
    kill "$server" 2>/dev/null || true
    wait "$server" || true
}

list out # it is still there if we were killed before
vllm serve "${MODEL:-Qwen/Qwen3-0.6B}" --served-model-name small --host 0.0.0.0 --port "$port" &
server=$!
trap leave EXIT
trap 'exit 143' TERM INT
until curl --fail --silent --output /dev/null "http://127.0.0.1:$port/health"; do
    kill -0 "$server" # fails, and ends us, if the server did
    sleep "${POLL_SECONDS:-5}"
done
list in
wait "$server"
