#!/usr/bin/env bash
# Waits for servers, then begins the run of study.yaml, or goes on with the one that was interrupted.
# Usage: go.sh [ADDRESS]    without an address, servers write themselves into endpoints.txt, and the run begins with
#                           those that are there once there are N_SERVERS (1), up to four
# Ends as bestarm-agent does: with 130 after SIGTERM or Ctrl-C; then start it again.
set -euo pipefail
cd "$(dirname "$0")"
. ./key.sh

# Whether the models of a server are listed; no list of processes shows the key.
answers() {
    curl --fail --silent --output /dev/null --header @- "$1/v1/models" <<<"Authorization: Bearer $VLLM_API_KEY"
}

echo "waiting for servers" >&2
if [ $# -gt 0 ]; then
    until answers "$1"; do sleep "${POLL_SECONDS:-5}"; done
    echo "$1/v1" >endpoints.txt
fi
found() { [ -f endpoints.txt ] && mapfile -t addresses <endpoints.txt && [ "${#addresses[@]}" -ge "${N_SERVERS:-1}" ]; }
until found; do sleep "${POLL_SECONDS:-5}"; done
for i in 1 2 3 4; do # fewer servers: an address that is listed twice counts once
    export "VLLM_$i=${addresses[$(((i - 1) % ${#addresses[@]}))]}"
done

if bestarm-agent show latest >/dev/null 2>&1; then
    exec bestarm-agent resume latest
fi
exec bestarm-agent select study.yaml
