# SPDX-License-Identifier: GPL-2.0-or-later
"""Workers of sluiced without threads: what they are given is done at once."""

from concurrent.futures import Future


class AtOnce:
    def submit(self, what, *arguments):
        answer = Future()
        try:
            answer.set_result(what(*arguments))
        except Exception as error:
            answer.set_exception(error)
        return answer

    def tend(self):
        pass

    def close(self):
        pass
