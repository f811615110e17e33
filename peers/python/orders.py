"""Lines of whoever started this program."""

import os
import queue
import threading


def orders():
    """An iterator of lines up to `quit`. If they end without it, nobody is there any more: the program ends at once, whatever
    it is doing.
    """
    lines = queue.SimpleQueue()

    def read():
        rest = b""
        # Not by sys.stdin: a thread that waits in it keeps the interpreter from ending in good order.
        while chunk := os.read(0, 65536):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                lines.put(line.decode())
                if line == b"quit":
                    return
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    return iter(lines.get, "quit")
