"""A client of redis-py's Lock that does as lock.js does. Arguments: host, port."""
import sys

import redis

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))


def lock(name):
    return client.lock("mutex:" + name, timeout=60, sleep=0.002)


class Commands:
    def take(self, name):
        self.last = lock(name)
        self.last.acquire()
        return "held"

    def try_(self, name):
        one = lock(name)
        if not one.acquire(blocking=False):
            return "busy"
        self.last = one
        return "held"

    def free(self):
        self.last.release()
        return "free"

    def count(self, name, path, rounds):
        for _ in range(int(rounds)):
            with lock(name):
                with open(path) as file:
                    number = int(file.read())
                with open(path, "w") as file:
                    file.write(str(number + 1))
        return "counted"


commands = Commands()
for line in sys.stdin:
    command, *words = line.split()
    print(getattr(commands, {"try": "try_"}.get(command, command))(*words), flush=True)
