#!/bin/sh
# Makes the keys, passwords and tokens of a deployment, each container's in a folder of its own. Run it once, before the first start.
#
#   deploy/docker/init.sh [FOLDER]      FOLDER is `secrets` beside this script unless given
#
# FOLDER may be read by its owner alone; what is in it by all, since the containers' users are others than you and are given a part of it without
# FOLDER itself. Needs /dev/urandom, od, and sha256sum or shasum.
set -eu
folder="${1:-$(dirname "$0")/secrets}"
services="tracker scheduler executor sweep gpu-inventory registry"

if [ -e "$folder/complete" ]; then
    echo "init: $folder is there already and is left as it is"
    exit 0
fi
umask 022
mkdir -p "$folder"
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

# --- The broker: who may connect (nats/auth.conf is part of deploy/nats/nats.conf), and with what each process does. One user for all of them; another
# way to sign in is another text here: in each process's folder a credentials file, and its path as `credentials` instead of `user` and `password`.
nats_password="$(secret)"
write nats/auth.conf <<END
authorization { user: footplate, password: "$nats_password" }
END
broker() { # process
    printf '[nats]\nuser = "footplate"\npassword = "%s"\n\n' "$nats_password"
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
    bootstrap=
    if [ "$service" = registry ]; then bootstrap='bootstrap = "/run/footplate/bootstrap"'; fi
    { printf '%s\n\n' "$bootstrap" && broker "$service" && object_store; } | write "$service/settings.toml"
done
{ broker agent && object_store && printf '[agent]\ntoken = "%s"\n' "$agent_token"; } | write agent/settings.toml

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
