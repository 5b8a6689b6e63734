"""A client of redis-py's Lock that does as lock.js does. Arguments: host, port."""
import sys

import redis

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))

for line in sys.stdin:
    _, name, path, rounds = line.split()
    for _ in range(int(rounds)):
        with client.lock("mutex:" + name, timeout=60, sleep=0.002):
            with open(path) as file:
                number = int(file.read())
            with open(path, "w") as file:
                file.write(str(number + 1))
    print("counted", flush=True)
