#!/bin/sh
# Makes tests/golden/tls: two certificates that sign themselves, with their keys, for servers that tests start. They are for nothing else.
set -eu
cd "$(dirname "$0")/../../tests/golden/tls"
for name in first second; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj "/CN=$name" \
        -addext 'subjectAltName=IP:127.0.0.1,DNS:localhost' -addext 'basicConstraints=critical,CA:FALSE' \
        -keyout "$name-key.pem" -out "$name.pem"
done
