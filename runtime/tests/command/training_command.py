"""A program that trains, as a user's may look: it prints or writes its steps, saves, resumes, and stops by SIGTERM.

It imports nothing of ours: the launcher runs it as a file.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

stopping: list[int] = []
"""The signals that have asked it to stop."""


def save(folder: Path, step: int) -> None:
    made = folder / f"step-{step}"
    made.mkdir(parents=True)
    (made / "state.json").write_text(json.dumps({"step": step}))
    (made / "DONE").touch()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--fail-at", type=int)
    parser.add_argument("--stop-file", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    step = json.loads(given.resume.read_text())["step"] if given.resume else 0
    while step < given.steps and not stopping and not (given.stop_file and given.stop_file.exists()):
        time.sleep(given.seconds)
        step += 1
        if step == given.fail_at:
            raise ValueError(f"step {step} is bad")
        if given.records:
            with given.records.open("a") as file:
                file.write(json.dumps({"step": step, "score": step / 10, "ntok": 100}) + "\n")
        else:
            print(f"step:{step} - critic/score/mean:{step / 10} - timing_s/step:2.0", flush=True)
        if given.folder and step % 2 == 0:
            save(given.folder, step)
    if given.folder and not (given.folder / f"step-{step}").exists():
        save(given.folder, step)
    print(f"ended at {step} with {os.environ.get('MARK', '')}", file=sys.stderr)


if __name__ == "__main__":
    main()
