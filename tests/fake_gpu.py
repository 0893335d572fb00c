"""Stands in for ``kernels.clock.Gpu`` where there is no GPU."""

import torch


class Device:
    """What bench asks of a GPU, on the CPU: everything runs, and a time is what the test says it is."""

    name, device = "Test GPU 1", torch.device("cpu")

    def __init__(self, **ms: list[float]):
        self.ms, self.waited = {"ours": [2.0, 1.0, 3.0], "peer": [4.0, 4.0, 4.0], **ms}, 0

    def sets(self, size):
        return 1

    def wait(self):
        self.waited += 1

    def warm(self, calls):
        for call in calls:
            call()

    def graph(self, calls):
        return lambda: None

    def times(self, rounds, calls, seconds=0.4):
        for play in rounds.values():
            play()
        return {name: self.ms[name] for name in rounds}

    def peak_mb(self, call):
        call()
        return 12.3456

    def free(self):
        pass

    def rates(self):
        return 4e9, 7e11  # 4 TB/s, 700 TFLOP/s


def refuse(*args, **kwargs):
    raise RuntimeError("wrong on this compiler\nsee elsewhere")
