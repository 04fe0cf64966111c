"""SIGINT, SIGTERM and SIGUSR2 collected while a training runs, so that it can save its state first.

Python calls a handler between two operations of its own, and the backward pass of one step may take a minute.
So a thread sees the signals too, says what a signal waits for, and lets a second Ctrl-C end the command.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bermo.interrupts import INTERRUPTED, SCHEDULERS, STOPPED, is_own_process
from bermo.progress import Display

CAUGHT = (signal.SIGINT, *SCHEDULERS)
PATIENCE = 1.0
"""Seconds that whoever pressed Ctrl-C waits without a word."""


@contextmanager
def catch_signals(display: Display, what_is_awaited: Callable[[], str]) -> Iterator[list[int]]:
    """Collect the signals instead of dying; a second Ctrl-C takes the usual way.

    Schedulers send theirs more than once, and to every process of a job. One that came too late to stop the
    block, such as in the evaluation after the last step, comes once more at its end: the command may have
    much more to do.
    """
    caught: list[int] = []
    watch = Watch(display, what_is_awaited)

    def note(number: int, frame: Any) -> None:
        # Python calls once for two that came while it could not.
        if number == signal.SIGINT and (caught or watch.num_interrupts > 1):
            raise KeyboardInterrupt
        caught.append(number)

    old = {}
    for number in CAUGHT:
        try:
            old[number] = signal.signal(number, note)
        except ValueError:  # not the main thread: whoever runs us there handles signals
            break
    try:
        if old:
            watch.start()
        yield caught
    finally:
        if old:
            watch.stop()
        for number, handler in old.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])


class Watch:
    """A thread that sees signals as they come. It has `PATIENCE` with a first one, and then says what it
    awaits; at a second Ctrl-C it ends a process that runs nothing but a command.
    """

    def __init__(self, display: Display, what_is_awaited: Callable[[], str]) -> None:
        self.display, self.what_is_awaited = display, what_is_awaited
        self.num_interrupts = 0
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Let the system's handler write the numbers of signals to the thread."""
        self.reader, self.writer = socket.socketpair()
        self.writer.setblocking(False)
        self.others = signal.set_wakeup_fd(self.writer.fileno(), warn_on_full_buffer=False)
        self.thread.start()

    def stop(self) -> None:
        """End the thread."""
        signal.set_wakeup_fd(self.others)
        self.writer.close()
        self.thread.join()
        self.reader.close()

    def _run(self) -> None:
        is_told = False
        while True:
            try:
                numbers = self.reader.recv(64)
            except TimeoutError:
                self.reader.settimeout(None)
                if self.num_interrupts > 1:
                    self._end()
                elif not is_told:
                    self.display.tell(self.what_is_awaited())
                    is_told = True
                continue
            if not numbers:
                return
            if any(number in CAUGHT for number in numbers):
                self.num_interrupts += numbers.count(signal.SIGINT)
                self.reader.settimeout(PATIENCE)

    def _end(self) -> None:
        if is_own_process():
            self.display.close()  # it has hidden the cursor
            os.write(2, f"bermo: {INTERRUPTED}\n".encode())
            os._exit(STOPPED)
