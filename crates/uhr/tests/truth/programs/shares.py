"""Burns known shares in named Python functions."""

import json
import random
import time


def half(n):
    x = 1
    for i in range(n):
        x = (x * 3 + i) & 0xFFFF
    return x


def inner(n):
    x = 1
    for i in range(n):
        x = (x * 5 + i) & 0xFFFF
    return x


def outer(n):
    return inner(n) + 1


class Worker:
    def fifth(self, n):
        return sum(i & 3 for i in range(n))


def measured(sums, name, work, n):
    before = time.thread_time_ns()
    work(random.randint(n // 2, n + n // 2))
    sums[name] += time.thread_time_ns() - before


def main():
    sums = {"half": 0, "outer": 0, "Worker.fifth": 0}
    worker = Worker()
    while time.thread_time() < 2.0:
        measured(sums, "half", half, 20000)
        measured(sums, "outer", outer, 12000)
        measured(sums, "Worker.fifth", worker.fifth, 9000)
    print(json.dumps({"cpu_ns": time.process_time_ns(), **sums}))


main()
