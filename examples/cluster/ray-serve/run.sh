#!/usr/bin/env bash
# Deploys the servers on the Ray cluster at hand, and runs the study on its head.
# Afterwards: serve shutdown
set -euo pipefail
cd "$(dirname "$0")/.."
serve deploy ray-serve/config.yaml
./go.sh "http://127.0.0.1:${PORT:-8000}"
