#!/usr/bin/env bash
# Starts the service, or finds it running, and runs the study from here.
# Afterwards: sky serve down bestarm
set -euo pipefail
cd "$(dirname "$0")/.."
. ./key.sh
if ! endpoint=$(sky serve status bestarm --endpoint); then
    sky serve up skypilot/service.yaml --service-name bestarm --secret VLLM_API_KEY --yes
    endpoint=$(sky serve status bestarm --endpoint)
fi
./go.sh "http://${endpoint#http://}"
