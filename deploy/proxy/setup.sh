# The proxy that the tests run deploy/proxy/haproxy.cfg with: HAProxy, of the system's packages; and openssl, which makes them a certificate.
# Sourced by deploy/setup.sh, whose say, fail, at_least and log it uses.

haproxy_version() { "$1" -v 2>/dev/null | sed -n 's/^HAProxy version \([0-9.]*\).*/\1/p'; }

find_haproxy() {
    local candidate
    for candidate in haproxy /usr/sbin/haproxy; do
        if command -v "$candidate" >/dev/null; then
            command -v "$candidate"
            return
        fi
    done
}

setup_proxy() {
    local program have
    program="${FOOTPLATE_HAPROXY:-$(find_haproxy)}"
    if [ -z "$program" ] || ! command -v openssl >/dev/null; then
        [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
            fail "HAProxy or openssl is missing; install them ($HAPROXY_SERIES or newer) with: sudo apt-get install haproxy openssl (or your system's own)"
        say "installing HAProxy and openssl from the system's packages (7 MB)"
        { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy openssl ||
            { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy openssl; }; } >>"$log" 2>&1 || {
            tail -n 15 "$log" >&2
            fail "apt-get could not install haproxy and openssl (the whole log: $log)"
        }
        program="${FOOTPLATE_HAPROXY:-$(find_haproxy)}"
    fi
    have="$(haproxy_version "$program")"
    [ -n "$have" ] || fail "${program:-haproxy} does not answer -v"
    at_least "$HAPROXY_SERIES" "$have" || fail "$program is HAProxy $have; deploy/proxy/haproxy.cfg needs $HAPROXY_SERIES or newer"
    say "HAProxy $have is at $program"
}
