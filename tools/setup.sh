# Sourced by tools/demo and tools/test: installs the Debian or Ubuntu packages that are missing, and
# nothing else. A package counts as missing if the command that looks for its contents fails.

missing_packages=()

# want 'COMMAND' PACKAGE...    remembers the packages if the command fails
want()
{
    local check=$1
    shift
    eval "$check" >/dev/null 2>&1 || missing_packages+=("$@")
}

# has_header HEADER    succeeds if the C compiler finds the header
has_header()
{
    echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1
}

as_root()
{
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

# install_missing    installs what want() remembered; fails, with a message, if that is impossible
install_missing()
{
    local packages=("${missing_packages[@]}") known=() package log
    missing_packages=()
    [ ${#packages[@]} -gt 0 ] || return 0
    echo "Installing ${packages[*]}"
    if ! command -v apt-get >/dev/null; then
        echo "There is no apt-get here: install what Debian calls ${packages[*]}, then run this again." >&2
        return 1
    fi
    log=$(mktemp)
    as_root apt-get update -qq >"$log" 2>&1 </dev/null || true # the old lists may be enough
    for package in "${packages[@]}"; do # releases differ in the names and number of their packages
        if apt-cache show "$package" >/dev/null 2>&1; then
            known+=("$package")
        else
            echo "No package $package here"
        fi
    done
    if [ ${#known[@]} = 0 ] || ! as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "${known[@]}" >>"$log" 2>&1 </dev/null; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        echo "Could not install ${packages[*]}" >&2
        return 1
    fi
    rm -f "$log"
}

# need_meson    on a distribution older than Meson 1.0, installs Meson in a virtual environment
need_meson()
{
    local version venv=$PWD/.venv
    version=$(meson --version 2>/dev/null) || true
    if [ "${version%%.*}" -ge 1 ] 2>/dev/null; then
        return 0
    fi
    if [ ! -x "$venv/bin/meson" ]; then
        want 'python3 -m venv --help && python3 -m ensurepip --version' python3-venv
        install_missing || return 1
        echo "Installing Meson in .venv (found ${version:-none}, 1.0 is needed)"
        python3 -m venv "$venv" && "$venv/bin/pip" install --quiet 'meson>=1.0' </dev/null || return 1
    fi
    PATH=$venv/bin:$PATH
}

# The packages that every build needs.
want_build_tools()
{
    want 'command -v gcc && command -v cc && has_header stdio.h' gcc libc6-dev
    want 'command -v ninja' ninja-build
    want 'command -v meson' meson
    want 'command -v python3' python3
    want 'command -v pkg-config' pkg-config
    want 'has_header cjson/cJSON.h' libcjson-dev
}

# What examples/minilm needs in addition: Unicode tables, and a way to fetch its model.
want_engines()
{
    want 'has_header utf8proc.h' libutf8proc-dev
    want 'python3 -m pip --version || { python3 -m venv --help && python3 -m ensurepip --version; }' python3-venv
}
