"""Does with a Lock of redis-py what lock.js does. Arguments: host, port, name, file, rounds."""
import sys

import redis

host, port, name, path, rounds = sys.argv[1:]
client = redis.Redis(host=host, port=int(port))

for _ in range(int(rounds)):
    with client.lock("mutex:" + name, timeout=60, sleep=0.002):
        with open(path) as file:
            number = int(file.read())
        with open(path, "w") as file:
            file.write(str(number + 1))
