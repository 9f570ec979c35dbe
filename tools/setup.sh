#!/usr/bin/env bash
# Installs the Debian packages that a job needs and this machine lacks; does nothing when it has all.
#
#   tools/setup.sh run      what `make run` needs
#   tools/setup.sh test     that, and what the tests need
#   tools/setup.sh check    that, and what .ci/run needs
#
# Without the rights to install, it names the packages and exits with 1.
set -euo pipefail

# A line is `package`, or `program:package` where any copy of the program will do.
run=(g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config python3:python3
    libcli11-dev libexpected-dev libfmt-dev libhwy-dev libpcre2-dev libspdlog-dev libssl-dev
    libxxhash-dev libzstd-dev nlohmann-json3-dev)
test=("${run[@]}" libbenchmark-dev libgtest-dev libgmock-dev librapidcheck-dev)
check=("${test[@]}" ccache:ccache clang++-14:clang-14 clang-format-14:clang-format-14
    clang-tidy-14:clang-tidy-14 libclang-rt-14-dev)

is_installed() {
    [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# Prints the packages that are missing, one a line.
missing() {
    local need
    for need in "$@"; do
        if [[ "$need" == *:* ]]; then
            command -v "${need%%:*}" >/dev/null || echo "${need##*:}"
        else
            is_installed "$need" || echo "$need"
        fi
    done
    python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
}

# How to become root: nothing to do, sudo, or the empty hand.
root_command() {
    if [[ $(id -u) -eq 0 ]]; then
        echo env
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
        echo sudo env
    fi
}

main() {
    case "${1:-}" in
        run) needs=("${run[@]}") ;;
        test) needs=("${test[@]}") ;;
        check) needs=("${check[@]}") ;;
        *)
            echo "usage: tools/setup.sh run|test|check" >&2
            exit 2
            ;;
    esac
    if ! command -v dpkg-query >/dev/null; then
        echo "setup.sh: not a Debian system; it is up to you to have what these hold:" >&2
        echo "    ${needs[*]##*:}" >&2
        exit 0
    fi

    mapfile -t packages < <(missing "${needs[@]}")
    if [[ ${#packages[@]} -eq 0 ]]; then
        exit 0
    fi
    read -ra as_root <<<"$(root_command)"
    if [[ ${#as_root[@]} -eq 0 ]]; then
        echo "setup.sh: these Debian packages are missing, and only root can install them:" >&2
        echo "    apt-get install --no-install-recommends ${packages[*]}" >&2
        exit 1
    fi
    echo "Installing ${#packages[@]} Debian packages: ${packages[*]}"
    local apt=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y)
    if ! { "${apt[@]}" update &&
        "${apt[@]}" install --no-install-recommends "${packages[@]}"; }; then
        echo "setup.sh: apt-get could not install: ${packages[*]}" >&2
        exit 1
    fi
}

main "$@"
