# CANN's environment for every shell of the image: KubeRay starts Ray by `bash -c`, and workers inherit it from their
# raylet. Read through BASH_ENV and /etc/profile.d; does its work once, and keeps a caller's `set -u` from ending it.
if [ -z "${RLJOB_ASCEND_ENVIRONMENT:-}" ]; then
    export RLJOB_ASCEND_ENVIRONMENT=1
    case $- in *u*) rljob_strict=1; set +u ;; *) rljob_strict= ;; esac
    for rljob_file in /usr/local/Ascend/ascend-toolkit/set_env.sh /usr/local/Ascend/cann/set_env.sh \
        /usr/local/Ascend/nnal/atb/set_env.sh; do
        # A file of CANN may fail without NPUs; what is missing shows in the preflight.
        if [ -f "$rljob_file" ]; then . "$rljob_file" > /dev/null || true; fi
    done
    # The driver's libraries come from the node; before the driver is mounted, as in a build, the toolkit's stand in.
    export LD_LIBRARY_PATH="/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64/driver:${LD_LIBRARY_PATH:-}"
    if [ ! -d /usr/local/Ascend/driver/lib64 ] && [ -n "${ASCEND_TOOLKIT_HOME:-}" ]; then
        export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$ASCEND_TOOLKIT_HOME/$(uname -m)-linux/devlib"
    fi
    if [ -n "$rljob_strict" ]; then set -u; fi
    unset rljob_file rljob_strict
fi
