#!/usr/bin/env bash
# Submits the servers and the head job, which cancels them when the run is done.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p logs
: >endpoints.txt
. ./key.sh
servers=$(sbatch --parsable slurm/servers.sh)
head=$(sbatch --parsable --export="ALL,SERVERS=$servers" slurm/head.sh)
echo "servers: job $servers; head: job $head, whose log is logs/head.log"
