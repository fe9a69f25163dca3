# Sourced by scripts/test and scripts/demo, with $ROOT set: makes $ROOT/.venv ready, and says nothing when it is.
# Use: prepare runtime|dev. Only sh, git and a Python 3.11+ are expected of the machine.

MINIMUM='import sys; sys.exit(sys.version_info < (3, 11))'

# A Python of the user's environment must not leak into ours, and a folder that its owner cannot enter helps nobody.
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP
umask u+rwx

find_python() {
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -I -c "$MINIMUM" >/dev/null 2>&1; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

prepare() {
    # The quick way: .venv itself says that it is complete and of this checkout.
    if [ -x "$ROOT/.venv/bin/python" ] &&
        "$ROOT/.venv/bin/python" -I -B "$ROOT/scripts/bootstrap.py" check "$1" 2>/dev/null; then
        return 0
    fi
    python=$(find_python) || {
        echo "ledger: no Python 3.11 or newer on the PATH; install one (Debian, Ubuntu: apt install python3)" >&2
        exit 1
    }
    "$python" -I -B "$ROOT/scripts/bootstrap.py" make "$1" || exit $?
}
