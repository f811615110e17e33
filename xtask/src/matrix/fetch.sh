# Unpacks a server of another Debian release, with the libraries it needs. Nothing is installed.
#
# $1 folder to make   $2 package: redis-server or valkey-server   $3 suite of the archive, such as trixie
#
# `bin/redis-server` and `bin/redis-cli` in the folder start it by its own loader: it was built for another libc.
# The archive is the one that this machine already uses; only the suite differs.
set -eu
folder=$1 package=$2 suite=$3

fail() {
    echo "$1" >&2
    exit 1
}

archive=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' 'Component: main' | head -n 1)
[ -n "$archive" ] || fail "this machine has no Debian archive among its apt sources, or never ran apt-get update"

rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/root" "$folder/bin"
cd "$folder"
: >apt/status
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $suite main" >apt/sources.list

apt() {
    apt-get -qq -o APT::Sandbox::User= -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::status="$folder/apt/status" -o Dir::State::lists="$folder/apt/lists" \
        -o Dir::Cache="$folder/apt" -o Dir::Cache::archives="$folder/apt/archives" "$@"
}
apt update
# As far as apt knows nothing is installed yet, so libc and all other libraries come along.
apt install --yes --download-only --no-install-recommends "$package" >apt/log 2>&1 || fail "$(tail -n 1 apt/log)"
for file in apt/archives/*.deb; do
    dpkg-deb -x "$file" root
done
rm -rf apt

loader=$(find "$folder/root" -type f -name 'ld-linux*.so.*' | head -n 1)
[ -n "$loader" ] || fail "no loader among the packages of $suite"
libraries=$(find "$folder/root" -type d -path "*lib/$(basename "$(dirname "$loader")")" | paste -sd :)
for program in server cli; do
    real="$folder/root/usr/bin/${package%-server}-$program"
    printf '#!/bin/sh\nexec "%s" --argv0 "%s" --library-path "%s" "%s" "$@"\n' \
        "$loader" "$real" "$libraries" "$real" >"bin/redis-$program"
    chmod 755 "bin/redis-$program"
done
