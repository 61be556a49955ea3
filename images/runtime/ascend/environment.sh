# CANN's environment for every shell of the image: KubeRay starts Ray with `bash -c`, and workers inherit it from their
# raylet. Read through BASH_ENV and /etc/profile.d. Takes effect once, and works in a shell with `set -u`.
if [ -z "${RLJOB_ASCEND_ENVIRONMENT:-}" ]; then
    export RLJOB_ASCEND_ENVIRONMENT=1
    case $- in *u*) rljob_strict=1; set +u ;; *) rljob_strict= ;; esac
    # A file of CANN may fail without NPUs. The preflight reports what is missing.
    for rljob_file in /usr/local/Ascend/ascend-toolkit/set_env.sh /usr/local/Ascend/cann/set_env.sh \
        "${ASCEND_TOOLKIT_HOME:-/usr/local/Ascend/cann}/share/info/ascendnpu-ir/bin/set_env.sh"; do
        if [ -f "$rljob_file" ]; then . "$rljob_file" > /dev/null || true; fi
    done
    # Without an ABI it imports torch twice to detect it: 16 s (Ascend/cann-container-image, issue 102).
    rljob_file=/usr/local/Ascend/nnal/atb/set_env.sh
    if [ -f "$rljob_file" ]; then . "$rljob_file" "--cxx_abi=${ATB_CXX_ABI:-1}" > /dev/null || true; fi
    # The driver's libraries come from the node.
    export LD_LIBRARY_PATH="/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64/driver:${LD_LIBRARY_PATH:-}"
    if [ -n "$rljob_strict" ]; then set -u; fi
    unset rljob_file rljob_strict
fi
