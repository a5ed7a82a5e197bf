#!/usr/bin/env bash
# Installs servers and router with helm, forwards the router's port, and runs the study from here.
# Afterwards: helm uninstall bestarm
set -euo pipefail
cd "$(dirname "$0")/.."
. ./key.sh
port=${PORT:-8000}
kubectl create secret generic vllm-key --from-file=key=<(printf %s "$VLLM_API_KEY") \
    --dry-run=client --output=yaml | kubectl apply --filename=-
helm repo add vllm https://vllm-project.github.io/production-stack
helm upgrade --install bestarm vllm/vllm-stack --values kubernetes/values.yaml --wait --timeout 30m
kubectl port-forward service/bestarm-router-service "$port:80" &
trap "kill $!" EXIT
./go.sh "http://127.0.0.1:$port"
