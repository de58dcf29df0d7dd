#!/usr/bin/env bash
# Tries a running server with curl, as a first user would: smoke.sh [http://127.0.0.1:8000]
# It must serve the Adult example. One sample is added, asked for, and deleted again.
set -euo pipefail
url="${1:-http://127.0.0.1:8000}"
row='[39,"State-gov",77516,"Bachelors",13,"Never-married","Adm-clerical","Not-in-family","White","Male",2174,0,40,"United-States"]'

# expect STATUS TEXT CURL_ARGUMENTS...: the answer has this status and contains this text
expect() {
    local status="$1" text="$2" answer
    shift 2
    answer=$(curl --silent --show-error --max-time 60 --write-out '\n%{http_code}' "$@")
    if [ "${answer##*$'\n'}" != "$status" ] || [[ "$answer" != *"$text"* ]]; then
        printf 'FAILED: curl %s\n  expected %s and %s, got:\n%s\n' "$*" "$status" "$text" "$answer" >&2
        exit 1
    fi
    printf 'ok  %s %s\n' "$status" "${*: -1}"
}
json=(-H 'Content-Type: application/json')

expect 200 '' "$url/healthz"
expect 200 '' "$url/readyz"
expect 200 '"exact"' "$url/model"
expect 200 '"predictions"' "${json[@]}" -d "{\"instances\":[$row]}" "$url/predict"
expect 201 '"smoke-1"' "${json[@]}" -d "{\"samples\":[{\"id\":\"smoke-1\",\"features\":$row,\"label\":\">50K\"}]}" "$url/samples"
expect 200 '"smoke-1"' "$url/samples/smoke-1"
expect 200 '"unlearned"' -X DELETE "$url/samples/smoke-1"
expect 404 '' "$url/samples/smoke-1"
expect 422 '"errors"' "${json[@]}" -d '{"instances":[[1,2,3]]}' "$url/predict"
echo 'the server works'
