"""Worker processes are forked from one process per node that has imported torch, verl and vLLM already.

A run consists of a dozen Python processes on each node, and each would import the same libraries again: eight seconds
of processor time each, four fifths of a start on a small machine. Instead, Ray and vLLM start `client`, which looks
like the Python interpreter to them, and `server` forks the process that they asked for. `preload` lists the imports.

Only on CPUs. On Ascend the processes start as Ray and vLLM start them: importing verl there asks torch_npu whether
there is a device (verl/utils/device.py:15-28, 0.9.1), which opens the driver, and a process that is forked afterwards
would inherit the open driver, and a device list from before Ray set ASCEND_RT_VISIBLE_DEVICES for it. A server that
imports less would be possible there, but nobody has tried it on an NPU.

Where anything is unclear (no server, an import that started a thread, another environment than that of the imports),
the client replaces itself by an ordinary interpreter, and the process starts as it would without all this.
"""
