# Sourced by bash (BASH_ENV) before a script of verl, in restricted mode: every command that the script calls is one of
# the functions below, so that nothing runs. A call of a Python module is printed instead: the mark, the exported
# variables, the mark, the arguments, the mark; each word ends with a null byte.

export -n RLJOB_MARK BASH_ENV

rljob_print_call() {
    local name
    printf '%s\0' "$RLJOB_MARK"
    for name in $(compgen -e); do printf '%s=%s\0' "$name" "${!name}"; done
    printf '%s\0' "$RLJOB_MARK" "$@" "$RLJOB_MARK"
}

# `python3 -c 'import torch_npu'` succeeds, which is how the scripts recognise an NPU.
python3() {
    if [[ "${1:-}" == -m ]]; then rljob_print_call "$@"; fi
}
python() { python3 "$@"; }

# These call the command that follows them.
nohup() { "$@"; }
exec() { "$@"; }

# These print what the scripts use.
date() { printf 0; }
basename() {
    if [[ "${1:-}" == -- ]]; then shift; fi
    local name="${1##*/}"
    printf '%s\n' "${name%"${2:-}"}"
}
dirname() { printf '%s\n' "${1%/*}"; }
tee() {
    local word=""
    while IFS= read -r -d '' word; do printf '%s\0' "$word"; done
    printf '%s' "$word"
}

# Builtins that would fail in restricted mode or change this process.
cd() { :; }
source() { :; }
ulimit() { :; }

# Everything else does nothing and succeeds: pip, mkdir, ray, npu-smi.
command_not_found_handle() { :; }
