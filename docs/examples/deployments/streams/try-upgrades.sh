#!/bin/sh
# Opens WebSockets and event streams, reloads the proxy five times and replaces it three times, and prints what the streams
# have noticed: nothing. Start the proxy first, with `control` in its config.
#
#     CONFIG=weir.toml SOCKET=/run/weir.sock WS=ws://127.0.0.1/chat EVENTS=http://127.0.0.1/events sh try-upgrades.sh
set -eu
: "${CONFIG:?}" "${SOCKET:?}" "${WS:?}" "${EVENTS:?}"
WEIR=${WEIR:-weir} CONNECTIONS=${CONNECTIONS:-50} PAUSE=${PAUSE:-1}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
duration=$((PAUSE * 9 + 2))s

"$WEIR" load --no-watch -c "$CONNECTIONS" -R 1k -d "$duration" "$WS" >"$directory/ws" 2>&1 &
ws=$!
"$WEIR" load --no-watch --sse -c "$CONNECTIONS" -d "$duration" "$EVENTS" >"$directory/events" 2>&1 &
events=$!

sleep "$PAUSE"
for number in 1 2 3 4 5; do
    "$WEIR" ctl --socket "$SOCKET" reload >/dev/null
    echo "reload $number"
    sleep "$PAUSE"
done
for number in 1 2 3; do
    # Each new process takes the sockets of the one before, which ends with its last stream.
    "$WEIR" proxy --config "$CONFIG" --upgrade-from "$SOCKET" >"$directory/proxy$number" 2>&1 &
    echo "upgrade $number: process $!"
    sleep "$PAUSE"
done

code=0
for name in ws events; do
    # Its exit code also says that the machine was too busy for figures, which are not asked for here.
    eval "wait \"\$$name\"" || true
    if grep -q '^errors  *none$' "$directory/$name"; then
        echo "$name: no message lost, no connection closed"
    else
        code=1
        cat "$directory/$name"
    fi
done
exit "$code"
