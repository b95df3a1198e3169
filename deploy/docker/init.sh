#!/bin/sh
# Makes the keys, passwords and tokens of a deployment, each container's in a folder of its own. Run it once, before the first start.
#
#   deploy/docker/init.sh [FOLDER]      FOLDER is `secrets` beside this script unless given
#
# FOLDER may be read by its owner alone; what is in it by all, since the containers' users are others than you and are given a part of it without
# FOLDER itself. Needs /dev/urandom, od, sha256sum or shasum, and docker, whose image makes the broker's keys; FOOTPLATE=/path/to/footplate makes them
# without it.
set -eu
here="$(cd "$(dirname "$0")" && pwd)"
folder="${1:-$here/secrets}"
services="tracker scheduler executor sweep gpu-inventory registry"

if [ -e "$folder/complete" ]; then
    echo "init: $folder is there already and is left as it is"
    exit 0
fi
umask 022
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
chmod 0700 "$folder"

secret() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
sha256() { printf %s "$1" | { sha256sum 2>/dev/null || shasum -a 256; } | cut -d ' ' -f 1; }
write() { # path in FOLDER
    mkdir -p "$(dirname "$folder/$1")"
    cat >"$folder/$1"
}

# --- The object store: one key, for the services and the agent.
s3_key="footplate" s3_secret="$(secret)"
write s3.env <<END
ROOT_ACCESS_KEY=$s3_key
ROOT_SECRET_KEY=$s3_secret
END
object_store() {
    printf '[blobs]\naccess-key = "%s"\nsecret-key = "%s"\n\n' "$s3_key" "$s3_secret"
}

# --- The broker: its operator's keys, what the server is told of them (nats/auth.conf is part of deploy/nats/nats.conf), and credentials of each process,
# which let it do at the broker what it is for. The registry signs with the keys and writes down who is revoked, so it has the folder itself.
if [ -z "${FOOTPLATE:-}" ]; then
    . "$here/../versions.env"
    docker build --quiet --target service --build-arg "RUST_VERSION=$RUST_VERSION" --tag "footplate:$FOOTPLATE_VERSION" \
        --file "$here/Dockerfile" "$here/../.." >/dev/null
fi
footplate() {
    if [ -n "${FOOTPLATE:-}" ]; then
        "$FOOTPLATE" "$@" >/dev/null
    else
        docker run --rm --network none --user "$(id -u):$(id -g)" --volume "$folder:$folder" "footplate:$FOOTPLATE_VERSION" "$@" >/dev/null
    fi
}
footplate nats init "$folder/operator" --accounts-dir /data/accounts
write nats/auth.conf <"$folder/operator/nats-accounts.conf"
rm "$folder/operator/nats-accounts.conf"
credentials() { # process, --service or --node, its name there
    mkdir -p "$folder/$1"
    footplate nats creds --operator "$folder/operator" "$2" "$3" --out "$folder/$1/nats.creds"
    chmod a+r "$folder/$1/nats.creds"
}
for service in $services; do
    credentials "$service" --service "$service"
done
credentials agent --node node-1
chmod -R a+rwX "$folder/operator"
broker() { # more lines of the part
    printf '[nats]\ncredentials = "/run/footplate/nats.creds"\n%s\n' "${1:-}"
}

# --- Tokens: yours and the agent's. The registry learns their digests and tells everyone.
your_token="fp_$(secret)" agent_token="fp_$(secret)"
write registry/bootstrap <<END
sha256:$(sha256 "$your_token") service:bootstrap
sha256:$(sha256 "$agent_token") node:node-1
END
write token <<END
$your_token
END
write cli/config.toml <<END
current = "compose"

[contexts.compose]
addr = "proxy:7450"
token = "$your_token"
END

for service in $services; do
    bootstrap= operator=
    if [ "$service" = registry ]; then
        bootstrap='bootstrap = "/run/footplate/bootstrap"'
        operator='operator = "/run/operator"
'
    fi
    { printf '%s\n\n' "$bootstrap" && broker "$operator" && object_store; } | write "$service/settings.toml"
done
{ broker && object_store && printf '[agent]\ntoken = "%s"\n' "$agent_token"; } | write agent/settings.toml

# --- Grafana.
write grafana.env <<END
GF_SECURITY_ADMIN_PASSWORD=$(secret)
END

# --- The proxy: where a certificate goes, as tls.pem.
mkdir -p "$folder/proxy"

# Yours alone: nothing in a container reads it.
chmod 0600 "$folder/token"
: >"$folder/complete"
echo "init: keys, passwords and tokens are in $folder"
