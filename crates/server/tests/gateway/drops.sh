#!/usr/bin/env bash
# Two networks of their own, joined by a cable: the gateway in one, a client in the other. The client goes on until the kernel drops it,
# and is heard again after a while. Run by `unshare --map-root-user --net`, with the binary, its file, and a directory to write to.
set -euo pipefail
binary=$1 file=$2 scratch=$3
PATH=$PATH:/usr/sbin:/sbin

ip link set lo up
unshare --net sleep 60 &
client=$!
trap 'kill "$client" "${origin:-}" "${gateway:-}" 2>/dev/null || true' EXIT
until [[ "$(readlink "/proc/$client/ns/net")" != "$(readlink /proc/$$/ns/net)" ]]; do :; done
inside() { nsenter --target "$client" --net "$@"; }
ip link add here type veth peer name there netns "$client"
ip addr add 198.51.100.1/24 dev here
ip link set here up
inside ip addr add 198.51.100.2/24 dev there
inside ip link set there up

"$binary" nftables "$file" --ports 8000 >"$scratch/ruleset"
nft -f "$scratch/ruleset"
python3 -c '
import http.server
class Origin(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Origin).serve_forever()' 2>/dev/null &
origin=$!
"$binary" gateway --config "$file" --proxy 0.0.0.0:8000 --admin 127.0.0.1:8001 --ban-after 5 --ban-for 6s >/dev/null 2>"$scratch/log" &
gateway=$!

status() { curl --silent --output /dev/null --max-time "$1" --write-out '%{http_code}' "$2" || true; }
ask() { inside curl --silent --output /dev/null --max-time "$1" --write-out '%{http_code}' http://198.51.100.1:8000/ || true; }
is_dropped() { [[ "$(nft list set inet tollgate offenders)" == *198.51.100.2* ]]; }
for ready in http://127.0.0.1:8001/ready http://127.0.0.1:9000/; do
    for _ in {1..100}; do
        [[ "$(status 5 "$ready")" == 200 ]] && break
        sleep 0.1
    done
done

for _ in {1..6}; do printf '%s ' "$(ask 5)"; done
for _ in {1..50}; do
    is_dropped && break
    ask 1 >/dev/null
done
# Nothing at all comes back from a kernel that drops.
printf '%s\n' "$(ask 1)"
is_dropped && echo dropped
# What comes from this machine is not dropped, however often it is denied.
for _ in {1..20}; do here=$(status 5 http://198.51.100.1:8000/); done
printf '%s\n' "$here"
for _ in {1..30}; do
    again=$(ask 1)
    [[ "$again" == 429 ]] && break
done
printf '%s\n' "$again"
