# Sourced: sets VLLM_API_KEY, which the servers ask for, to what is in .vllm-key; makes the file at first.
if [ ! -s .vllm-key ]; then
    (umask 077 && python3 -c 'import secrets; print(secrets.token_hex(24))' >.vllm-key)
fi
VLLM_API_KEY=$(<.vllm-key)
export VLLM_API_KEY
