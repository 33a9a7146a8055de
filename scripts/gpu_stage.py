"""A stage of scripts/gpu_check.sh and its parts at work: verdicts and figures, written down as they come."""

import json
import math
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Callable

import gpu_figures
from gpu_process import Done, Log, Task, run, run_all

ROOT = Path(__file__).resolve().parent.parent
# How one test is run in a process of its own.
ALONE = ["--nocapture", "--test-threads=1"]
# How often a test is gone on with behind a case that ended it.
MORE = 5


class Failed(Exception):
    """A family is not well; why."""

    verdict = "failed"


class TimedOut(Failed):
    """A process of a family took too long."""

    verdict = "out of time"


class Skipped(Exception):
    """A family cannot be run here; why."""


class Stage:
    """What all parts share."""

    def __init__(self, bundle: Path, out: Path, work: Path, parts: dict[str, float], chosen: list[str], logs: dict[str, str], steps: int):
        self.bundle, self.out, self.work = bundle, out, work
        # The log of each part that does not have one of its own name.
        self.logs = logs
        self.chosen = [word.partition("/")[::2] for word in chosen]
        self.device = os.environ.get("DEVICE", "cuda")
        self.scale, self.family = float(os.environ.get("SCALE", "1")), float(os.environ.get("FAMILY_SECONDS", "inf"))
        self.parts = {part: seconds * self.scale for part, seconds in parts.items() if self.wants(part)}
        self.steps = int(os.environ.get("STEPS", str(steps)))
        self.batch = os.environ.get("BATCH")
        self.jobs = int(os.environ.get("JOBS", "0")) or max(1, min(6, (os.cpu_count() or 1) // 2))
        self.runner = str(bundle / "bin" / "runner")
        self.data = next((f for f in (bundle / "data", Path(os.environ.get("RUNNER_TEST_DATA", ""))) if (f / "mnist").is_dir()), None)
        self.results = Log(out / "results.jsonl")
        self.bad = False
        # Compiled kernels are kept, so that only the first process that needs one waits for it.
        self.env = {
            "RUNNER_TEST_ROOT": str(ROOT),
            "RUNNER_TEST_BINARY": self.runner,
            "CUDA_CACHE_PATH": os.environ.get("CUDA_CACHE_PATH", str(work / "cuda-cache")),
            "CUDA_CACHE_MAXSIZE": os.environ.get("CUDA_CACHE_MAXSIZE", str(1 << 30)),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(work / "cache")),
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            "TRITON_CACHE_DIR": str(work / "triton"),
        }
        if self.device == "cuda":
            # Without a GPU, tests fail then instead of being skipped.
            self.env["RUNNER_TEST_GPU"] = "1"
        if self.data:
            self.env["RUNNER_TEST_DATA"] = str(self.data)

    def wants(self, part: str) -> bool:
        return not self.chosen or any(part == name for name, _ in self.chosen)

    def limit(self, seconds: float) -> float:
        """The most seconds of a process that has so many on the machines that this was made for."""
        return min(seconds * self.scale, self.family)

    def result(self, **fields) -> None:
        self.results.line(json.dumps(fields))

    def figure(self, kind: str, **fields) -> None:
        self.result(kind=kind, **fields)

    def program(self, name: str) -> str:
        """A program of the bundle."""
        path = self.bundle / "bin" / name
        if not path.is_file():
            raise Skipped(f"the bundle has no `{name}`")
        return str(path)

    def summary(self) -> str:
        return gpu_figures.summary(self.out)


class Part:
    """A part at work."""

    def __init__(self, stage: Stage, name: str, deadline: float):
        self.stage, self.name, self.deadline = stage, name, deadline
        self.log = Log(stage.out / f"{stage.logs.get(name, name)}.log")
        self.work = stage.work / name
        self.work.mkdir(parents=True, exist_ok=True)
        self.begin = time.monotonic()
        self.count = {"ok": 0, "skipped": 0, "bad": 0}

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def wants(self, family: str) -> bool:
        words = [word for name, word in self.stage.chosen if name == self.name]
        return not words or any(word in family for word in words)

    def say(self, name: str, text: str) -> None:
        self.log.said(f"{name} | {text}")

    def verdict(self, name: str, verdict: str, seconds: float, note: str = "", **counts: int) -> None:
        """Writes down what became of a family, and how many cases it had."""
        kind = verdict if verdict in ("ok", "skipped") else "bad"
        self.count[kind] += 1
        self.stage.bad |= kind == "bad"
        note = " ".join(note.split())[:600]
        self.stage.result(part=self.name, name=name, verdict=verdict, seconds=round(seconds, 2), note=note, **counts)
        told = f", {gpu_figures.counted(counts)}" if counts else ""
        text = f"{self.name} {name}: {verdict} ({seconds:.1f} s{told})" + (f": {note[:200]}" if note and kind != "ok" else "")
        self.log.line(text)
        print(text, flush=True)
        self.stage.summary()

    def process(self, name: str, command: list[str], seconds: float, env: dict | None = None, see: Callable[[str], None] | None = None, silence: float = math.inf) -> Done:
        """Runs a process, whose lines `see` gets as they come; what is not well with it is for the caller to tell."""

        def say(name: str, line: str) -> None:
            self.say(name, line)
            if see:
                see(line)

        self.say(name, "$ " + " ".join(command))
        return run(Task(name, command, self.stage.limit(seconds), env or {}, silence), self.deadline, say, self.stage.env)

    def good(self, name: str, command: list[str], seconds: float, env: dict[str, str] | None = None) -> Done:
        """Runs a process that must end well."""
        done = self.process(name, command, seconds, env)
        if not done.good:
            # Enough of the command line to know it by; the log has all of it.
            words = " ".join(Path(word).name if "/" in word else word for word in command[:3])
            raise (TimedOut if done.timed_out else Failed)(f"`{words} …` {done.verdict()}: {why(done.lines)}")
        return done

    def family(self, name: str, function: Callable[[], str | None]) -> None:
        """Runs what a family is made of, if it is wanted."""
        if not self.wants(name):
            return
        begin = time.monotonic()
        if self.left() < 1:
            self.verdict(name, "not started: no time was left", 0)
            return
        verdict, note = "ok", ""
        try:
            note = function() or ""
        except Skipped as error:
            verdict, note = "skipped", str(error)
        except Failed as error:
            verdict, note = error.verdict, str(error)
        except Exception as error:  # A fault of these scripts must not cost the other families' results.
            verdict, note = "failed", f"{type(error).__name__}: {error}"
        self.verdict(name, verdict, time.monotonic() - begin, note)

    def tests(self, program: str, filter_: str, seconds: float) -> None:
        """Runs every test of a program in a process of its own, several at a time."""
        self.side_by_side(self.test_tasks(program, filter_, seconds), self.tested)

    def test_tasks(self, program: str, filter_: str, seconds: float) -> list[Task]:
        """A process for each test of a program whose name has `filter_` in it."""
        binary = self.stage.program(program)
        listed = self.process(program, [binary, "--list", *([filter_] if filter_ else [])], 20)
        names = [line[: -len(": test")] for line in listed.lines if line.endswith(": test")]
        if not names:
            raise Failed(f"`{program}` names no tests: {listed.verdict()}: {why(listed.lines)}")
        name = lambda test: test[len("cuda::") if test.startswith("cuda::") else 0 :]
        return [Task(name(test), [binary, "--exact", test, *ALONE], seconds) for test in names]

    def side_by_side(self, tasks: list[Task], judge: Callable[[Done], Task | None], jobs: int | None = None) -> None:
        """Runs families of one process each, several at a time; `judge` tells what became of each."""
        tasks = [replace(task, seconds=self.stage.limit(task.seconds)) for task in tasks if self.wants(task.name)]
        run_all(tasks, jobs or self.stage.jobs, self.deadline, self.say, judge, self.stage.env)

    def tested(self, done: Done) -> Task | None:
        """What became of a test. One of many cases that was ended by one of them is gone on with behind that one."""
        verdict, note = done.verdict(), ""
        begun = list(filter(None, map(case_of, done.lines)))
        failed = {line.partition(":")[0] for line in done.lines if line.startswith("FAILED ")}
        left_out = next((int(line.rpartition(" ")[2]) for line in done.lines if line.startswith("cases left out: ")), 0)
        ended = "cases done" in done.lines
        skipped = next(filter(None, (re.search(r"(?:^|\.\.\. )skipped\W+(.*)", line) for line in done.lines)), None)
        if not done.good:
            note = why(done.lines)
        elif not any("test result: ok. 1 passed;" in line for line in done.lines):
            verdict, note = "failed", "no such test was run"
        elif skipped and not begun:
            verdict, note = "skipped", skipped[1]
        elif skipped:
            note = f"in part skipped: {skipped[1]}"
        # The one that ended the process is no case that was run to its end.
        counts = {"ran": len(begun) - (not ended and not done.good), "wrong": len(failed), "left_out": left_out} if begun else {}
        self.verdict(done.task.name, verdict, done.seconds, note, **counts)
        name, _, count = done.task.name.partition(" +")
        if done.good or not begun or ended or int(count or 0) >= MORE:
            return None
        more = f"{name} +{int(count or 0) + 1}"
        self.say(more, f"goes on behind the case {begun[-1]}")
        return replace(done.task, name=more, env=done.task.env | {"RUNNER_TEST_AFTER": begun[-1]})


def case_of(line: str) -> str | None:
    """The case that a line of the operations' tests tells of; the test's name may stand before it."""
    found = re.search(r"(?:^|\.\.\. )case (.*)", line)
    return found[1] if found else None


def why(lines: list[str]) -> str:
    """The line that tells best what went wrong, and the case that it went wrong in."""
    for line in lines:
        if line.startswith('{"errors":'):
            try:
                return "; ".join(error["message"] for error in json.loads(line)["errors"])
            except (ValueError, KeyError, TypeError):
                return line
    for word in ("FAILED ", "panicked at", "error:", "Error"):
        for at, line in enumerate(lines):
            if word in line:
                if word == "FAILED ":
                    return line
                # A panic's message is in the line behind its place.
                said = " ".join(lines[at : at + 2]) if word == "panicked at" else line
                case = next(filter(None, map(case_of, reversed(lines[:at]))), None)
                return f"{said} (in case {case})" if case else said
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def machine(stage: Stage) -> str:
    """What the stage runs on, in words."""
    said: list[str] = []
    done = run(Task("devices", [stage.runner, "devices", "--json"], 20), time.monotonic() + 20, lambda _, line: said.append(line), stage.env)
    words = [f"{os.cpu_count()} CPU cores", f"Python {sys.version.split()[0]}"]
    try:
        told = json.loads(next(line for line in said if line.startswith("{")))
        words += [f"{d['name']}: {d.get('model')}" for d in told["devices"]]
        words += [f"driver {told['cuda']['driver_release']}, CUDA {told['cuda']['driver_cuda']}"] if told["cuda"]["available"] else [str(told["cuda"]["reason"])]
        words += [f"{library['name']} {library['version']}" for library in told["libraries"] if library.get("used")]
    except (StopIteration, ValueError, KeyError, TypeError):
        words.append(f"`runner devices` {done.verdict()}")
    return "; ".join(words) + "."
