# CANN's environment, which the entry point of a CANN image sets (Ascend/cann-container-image c5a67b3a,
# cann/9.1.0-beta.3-a3-ubuntu22.04-py3.12/Dockerfile:187-191) and KubeRay's command replaces. KubeRay starts Ray with
# `bash -c`, which reads this file through BASH_ENV, and workers inherit the variables from their raylet. In our own
# image it is /opt/ascend/environment.sh. Takes effect once, and works in a shell with `set -u`.
if [ -z "${RLJOB_ASCEND_ENVIRONMENT:-}" ] && [ -d /usr/local/Ascend ]; then
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
    # Last, for pods without a driver: the toolkit's substitute, which finds no device. torch_npu does not import without
    # either, and verl on the head would ask Ray for GPUs (verl 0.9.1, plugin/platform/platform_npu.py:34,
    # platform_manager.py:113, single_controller/ray/base.py:405). Where releases have it: the Dockerfile of CANN 8.5.2,
    # line 112; vllm-ascend 5cb98caaa, .github/workflows/dockerfiles/Dockerfile.buildwheel.a3:40; verl 1dda039b9,
    # docker/ascend/Dockerfile.ascend_9.1.0_a3:37.
    for rljob_file in devlib "$(uname -m)-linux/devlib" "$(uname -m)-linux/devlib/linux/$(uname -m)"; do
        rljob_file="${ASCEND_TOOLKIT_HOME:-/usr/local/Ascend/cann}/$rljob_file"
        if [ -e "$rljob_file/libascend_hal.so" ]; then LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$rljob_file"; break; fi
    done
    if [ -n "$rljob_strict" ]; then set -u; fi
    unset rljob_file rljob_strict
fi
