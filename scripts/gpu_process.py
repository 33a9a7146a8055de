"""Processes that may fail, fault or hang, each within its time, and what they say, as they say it."""

import math
import os
import signal
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterable

# Seconds from the signal to end to the one that cannot be refused, and from there until a process is given up.
GRACE, PATIENCE = 2.0, 5.0
# Lines of a process that go to the log, characters of each, and lines that are kept, the last ones.
LOGGED, WIDTH, KEPT = 20000, 2000, 5000
# Bytes of a log: larger files may not come back.
LOG_BYTES = 15 << 20


class Log:
    """A file that each line goes to at once, whole, whoever writes meanwhile."""

    def __init__(self, path: Path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.left = LOG_BYTES - os.fstat(self.file).st_size
        self.lock = threading.Lock()

    def line(self, text: str) -> None:
        os.write(self.file, (text + "\n").encode())

    def said(self, text: str) -> None:
        """A line of a process, as long as the log has room for such."""
        with self.lock:
            full, self.left = self.left < 0, self.left - len(text.encode()) - 1
            if self.left >= 0:
                self.line(text)
            elif not full:
                self.line("… the log is full: what processes say from here on is not written down")


@dataclass
class Task:
    """A process to be run: what it is called, its command line, the most seconds that it may take, and its own environment variables."""

    name: str
    command: list[str]
    seconds: float
    env: dict[str, str] = field(default_factory=dict)
    # The most seconds that it may say nothing for.
    silence: float = math.inf


@dataclass
class Done:
    """What became of a process."""

    task: Task
    # What it returned; negative for the signal that ended it; None if it was never started.
    status: int | None
    seconds: float = 0.0
    timed_out: bool = False
    lines: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.status == 0 and not self.timed_out

    def verdict(self) -> str:
        """In words, for a table."""
        if self.status is None:
            return "not started: no time was left"
        if self.timed_out:
            return f"out of time ({self.seconds:.0f} s)"
        if self.status < 0:
            try:
                name = signal.Signals(-self.status).name
            except ValueError:
                name = f"signal {-self.status}"
            return f"ended by {name}"
        return "ok" if self.status == 0 else f"failed (status {self.status})"


class Running:
    """A process at work, in a group of its own, so that all that it starts can be ended with it."""

    def __init__(self, task: Task, seconds: float, say: Callable[[str, str], None], env: dict[str, str]):
        self.task, self.begin, self.lines = task, time.monotonic(), deque(maxlen=KEPT)
        self.limit = self.begin + min(task.seconds, seconds)
        self.said = self.begin
        self.timed_out = False
        self.signalled: float | None = None
        self.killed: float | None = None
        self.process = subprocess.Popen(
            task.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            env=os.environ | env | task.env,
        )
        self.reader = threading.Thread(target=self.read, args=[say], daemon=True)
        self.reader.start()

    def read(self, say: Callable[[str, str], None]) -> None:
        for count, line in enumerate(self.process.stdout):
            text = line.decode(errors="replace").rstrip()
            self.lines.append(text)
            self.said = time.monotonic()
            # One that says the same for ever must not fill the disk, nor what may come back.
            if count < LOGGED:
                say(self.task.name, text if len(text) <= WIDTH else f"{text[:WIDTH]} …")
            elif count == LOGGED:
                say(self.task.name, f"… says more than {LOGGED} lines; those that follow are not written down")

    def signal(self, number: int) -> None:
        try:
            # The group has its leader's number, which is taken as long as one of its processes lives.
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def look(self) -> Done | None:
        """What became of it, once it has ended; ends it if its time is over."""
        now = time.monotonic()
        if self.process.poll() is None:
            if now < self.limit and now < self.said + self.task.silence and not self.timed_out:
                return None
            self.timed_out = True
            if self.signalled is None:
                self.signalled = now
                self.signal(signal.SIGTERM)
            elif self.killed is None and now > self.signalled + GRACE:
                self.killed = now
                self.signal(signal.SIGKILL)
            if self.killed is None or now < self.killed + PATIENCE:
                return None
            # Within the driver a process may not be ended even by this; nobody waits for it.
        return self.done()

    def done(self) -> Done:
        status = self.process.poll()
        seconds = time.monotonic() - self.begin
        # Whatever it has left behind.
        self.signal(signal.SIGKILL)
        self.reader.join(1.0)
        return Done(self.task, -signal.SIGKILL if status is None else status, seconds, self.timed_out, list(self.lines))

    def end(self) -> None:
        """Ends it at once."""
        self.signal(signal.SIGKILL)


def run_all(
    tasks: Iterable[Task],
    jobs: int,
    deadline: float,
    say: Callable[[str, str], None],
    done: Callable[[Done], Task | None],
    env: dict[str, str],
) -> None:
    """Runs `tasks`, `jobs` at a time, until `deadline` (of the monotonic clock); tells what each says, and what became of it, for
    which it may get another task, to be run next."""
    waiting, live = deque(tasks), []
    try:
        while waiting or live:
            while waiting and len(live) < jobs:
                task, left = waiting.popleft(), deadline - time.monotonic()
                if left < 1.0:
                    done(Done(task, None))
                    continue
                try:
                    live.append(Running(task, left, say, env))
                except OSError as error:
                    say(task.name, f"cannot be started: {error}")
                    done(Done(task, 127, lines=[f"cannot be started: {error}"]))
            for running in list(live):
                ended = running.look()
                if ended:
                    live.remove(running)
                    more = done(ended)
                    if more:
                        waiting.appendleft(more)
            time.sleep(0.01)
    finally:
        for running in live:
            running.end()


def run(task: Task, deadline: float, say: Callable[[str, str], None], env: dict[str, str]) -> Done:
    """Runs one."""
    found: list[Done] = []
    run_all([task], 1, deadline, say, found.append, env)
    return found[0]
