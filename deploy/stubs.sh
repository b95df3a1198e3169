#!/usr/bin/env bash
# Packs what a client of the API needs and no checkout: the .proto files, and Python stubs made of them.
#   deploy/stubs.sh [FOLDER]     footplate-protos-VERSION.tar.gz and footplate-stubs-VERSION.tar.gz in FOLDER (target/stubs)
# Needs the Python of `make setup-grpc`. The same sources give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/versions.env
out="${1:-target/stubs}"
python=.tools/grpc/bin/python
[ -x "$python" ] || { echo "stubs: no Python with grpcio-tools; get it with: make setup-grpc" >&2; exit 1; }
mkdir -p "$out"
made="$(mktemp -d)"
trap 'rm -rf "$made"' EXIT

pack() { # archive, folder, what in it
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - -C "$2" "$3" | gzip -n9 >"$1"
    echo "stubs: $1"
}
pack "$out/footplate-protos-$FOOTPLATE_VERSION.tar.gz" proto footplate
mapfile -t protos < <(cd proto && find footplate -name '*.proto' | LC_ALL=C sort)
"$python" -m grpc_tools.protoc -I proto --python_out="$made" --pyi_out="$made" --grpc_python_out="$made" "${protos[@]}"
pack "$out/footplate-stubs-$FOOTPLATE_VERSION.tar.gz" "$made" footplate
