# Installs the Debian packages given as arguments, as root.
#
# A freshly installed server starts as a service and would take the machine's default port. While this runs,
# policy-rc.d forbids that (101: action not allowed), unless the machine has such a policy of its own.
set -eu
policy=/usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive

if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

apt-get update
apt-get install -y --no-install-recommends "$@"
