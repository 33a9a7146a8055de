"""The stages of scripts/gpu_check.sh: parts one after the other, each within its time; results written down as they come.

A part is made of families, each a process or a few, so that an error that ends the use of the device, a crash or a hang takes no
other family with it. What a process says goes to OUT/STAGE/PART.log at once, what became of it and figures to
results.jsonl; summary.md is made anew after each family, and whenever the stage is ended from outside.
"""

import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import gpu_bundle
import gpu_parts
import gpu_quick
from gpu_stage import ROOT, Failed, Part, Skipped, Stage, machine

# The most seconds that each part may take. A stage takes less than its limit: see `plan`.
STAGES = {
    "correctness": {"devices": 30, "ops": 150, "golden": 60, "cuda": 60, "program": 30, "sanitizer": 90},
    "training": {"configs": 140, "bits": 90, "precision": 80, "learning": 90},
    "speed": {"bench": 150, "profile": 50, "peer": 220},
    # A little of all of them, in five minutes.
    "quick": {"checked": 50, "ours": 95, "theirs": 65, "profiles": 25, "aim": 12, "compiled": 13, "threads": 40},
}
# Few files, as not many may come back: the log that each part writes to.
LOGS = {"quick": {"ours": "steps", "theirs": "steps", "aim": "steps", "compiled": "steps", "threads": "steps"}}
# The fewest steps of a timed round, where `STEPS` says nothing.
STEPS = {"quick": 20}
# The parts, the unpacking, and whatever starts slowly.
LIMITS = {"quick": 330}
LIMIT = 480
USAGE = f"usage: scripts/gpu_check.sh BUNDLE {'|'.join(STAGES)} [PART | PART/WORD]...\n       scripts/gpu_check.sh plan"


class Stopped(BaseException):
    """Somebody wants the stage to end."""


def plan() -> None:
    for stage, parts in STAGES.items():
        for part, seconds in parts.items():
            print(f"{stage} {part} {seconds}")
        print(f"{stage} together {sum(parts.values())} of {LIMITS.get(stage, LIMIT)}")


def stop(number: int, _frame) -> None:
    raise Stopped(signal.Signals(number).name)


def check(stage: Stage, begun: float) -> None:
    """Runs the stage's parts; what a part does not use of its time, those behind it may."""
    end = begun
    for name, seconds in stage.parts.items():
        end += seconds
        print(f"\n===== {name} (at most {end - time.monotonic():.0f} s)", flush=True)
        stage.result(begin=name)
        part = Part(stage, name, end)
        verdict = "ok"
        try:
            (getattr(gpu_parts, name, None) or getattr(gpu_quick, name))(part)
        except Skipped as error:
            part.verdict("all", "skipped", 0, str(error))
        except Failed as error:
            part.verdict("all", "failed", time.monotonic() - part.begin, str(error))
        except Exception as error:
            part.verdict("all", "failed", time.monotonic() - part.begin, f"{type(error).__name__}: {error}")
        if part.count["bad"]:
            verdict = "**failed**"
        elif not part.count["ok"]:
            verdict = "skipped" if part.count["skipped"] else "**nothing was run**"
            stage.bad |= not part.count["skipped"]
        took = time.monotonic() - part.begin
        counts = f"{part.count['ok']} ok, {part.count['skipped']} skipped, {part.count['bad']} not well"
        stage.result(end=name, verdict=verdict, seconds=round(took, 1))
        part.log.line(f"===== {name}: {verdict}: {counts} ({took:.1f} s)")
        print(f"===== {name}: {verdict}: {counts} ({took:.1f} s)", flush=True)


def archive(out: Path) -> None:
    """All that a stage has left, in one file."""
    with tarfile.open(out / f"{out.name}.tar.gz", "w:gz") as tar:
        for path in sorted(out.iterdir()):
            if path.suffix != ".gz":
                tar.add(path, f"{out.name}/{path.name}")


def main(arguments: list[str]) -> int:
    if arguments == ["plan"]:
        plan()
        return 0
    if len(arguments) < 2 or arguments[1] not in STAGES:
        print(USAGE, file=sys.stderr)
        return 2
    bundle, name, chosen = Path(arguments[0]), arguments[1], arguments[2:]
    unknown = [word for word in chosen if word.partition("/")[0] not in STAGES[name]]
    if unknown or not bundle.exists():
        problem = f"no part of `{name}` is called `{unknown[0]}`: {', '.join(STAGES[name])}" if unknown else f"there is no `{bundle}`: scripts/gpu_pack.sh makes it"
        print(f"error: {problem}", file=sys.stderr)
        return 2
    begun = time.monotonic()
    out = Path(os.environ.get("OUT") or ROOT / "target/gpu/results").resolve() / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    work = Path(tempfile.mkdtemp(prefix="gpu-check."))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    stage = None
    try:
        try:
            if bundle.is_dir():
                folder, manifest = bundle.resolve(), json.loads((bundle / "manifest.json").read_text())
            else:
                folder = work / "bundle"
                manifest = gpu_bundle.unpack(bundle, folder)
        except (gpu_bundle.Failed, OSError, ValueError, KeyError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        stage = Stage(folder, out, work, STAGES[name], chosen, LOGS.get(name, {}), STEPS.get(name, 100))
        stage.result(stage=name, commit=manifest.get("commit", "unknown"), device=stage.device, machine=machine(stage), parts=list(stage.parts.items()))
        check(stage, begun)
    except Stopped as error:
        stage and stage.result(stopped=f"it got {error}")
        print(f"\nended early: {error}", file=sys.stderr)
        return 1
    finally:
        # Nothing that comes now keeps the summary from being written.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if stage:
            print(f"\n===== summary ({time.monotonic() - begun:.0f} s; everything is in {out})\n\n{stage.summary()[-9000:]}", end="", flush=True)
            if name in LOGS:
                archive(out)
        shutil.rmtree(work, ignore_errors=True)
    return 1 if stage.bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
