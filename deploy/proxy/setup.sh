# The proxy that the tests run deploy/proxy/haproxy.cfg with: HAProxy, of the system's packages.
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
    if [ -z "$program" ]; then
        [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
            fail "HAProxy is missing; install $HAPROXY_SERIES or newer with: sudo apt-get install haproxy (or your system's own)"
        say "installing HAProxy from the system's packages (5 MB)"
        { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy ||
            { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends haproxy; }; } >>"$log" 2>&1 || {
            tail -n 15 "$log" >&2
            fail "apt-get could not install haproxy (the whole log: $log)"
        }
        program="$(find_haproxy)"
    fi
    have="$(haproxy_version "$program")"
    [ -n "$have" ] || fail "${program:-haproxy} does not answer -v"
    at_least "$HAPROXY_SERIES" "$have" || fail "$program is HAProxy $have; deploy/proxy/haproxy.cfg needs $HAPROXY_SERIES or newer"
    say "HAProxy $have is at $program"
}
