#!/usr/bin/env bash
# Waits for a server, then begins the run of study.yaml, or goes on with the one that was interrupted.
# Usage: go.sh [ADDRESS]    without an address, servers write themselves into endpoints.txt
# Ends as bestarm-agent does: with 130 after SIGTERM or Ctrl-C; then start it again.
set -euo pipefail
cd "$(dirname "$0")"
. ./key.sh

# Whether the models of a server are listed; no list of processes shows the key.
answers() {
    curl --fail --silent --output /dev/null --header @- "$1/v1/models" <<<"Authorization: Bearer $VLLM_API_KEY"
}

echo "waiting for a server" >&2
if [ $# -gt 0 ]; then
    until answers "$1"; do sleep "${POLL_SECONDS:-5}"; done
    echo "$1/v1" >endpoints.txt
fi
until [ -s endpoints.txt ]; do sleep "${POLL_SECONDS:-5}"; done

if bestarm-agent show latest >/dev/null 2>&1; then
    exec bestarm-agent resume latest
fi
exec bestarm-agent select study.yaml
