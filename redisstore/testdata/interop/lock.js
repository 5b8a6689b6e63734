// Adds one to the number in a file under a lock of a library of npm, again and again. Arguments:
// the library, host and port of Redis, name, file, rounds. The key of a lock is mutex:NAME, since
// redis-semaphore allows no other.
'use strict';
const fs = require('fs');
const Redis = require('ioredis');

const [library, host, port, name, file, rounds] = process.argv.slice(2);
const client = new Redis({ host, port: Number(port) });
const ttl = 60000;
const pause = 2; // between attempts, in ms

const libraries = {
  redlock4() {
    const Redlock = require('redlock4');
    const waits = new Redlock([client], { retryCount: -1, retryDelay: pause, retryJitter: pause });
    return {
      take: (name) => waits.lock('mutex:' + name, ttl),
      free: (lock) => lock.unlock(),
    };
  },
  redlock5() {
    const Redlock = require('redlock').default;
    const redlock = new Redlock([client], { retryDelay: pause, retryJitter: pause });
    return {
      take: (name) => redlock.acquire(['mutex:' + name], ttl, { retryCount: -1 }),
      free: (lock) => lock.release(),
    };
  },
  'redis-semaphore'() {
    const { Mutex } = require('redis-semaphore');
    const mutex = (name) => new Mutex(client, name, { lockTimeout: ttl, acquireTimeout: ttl, retryInterval: pause });
    return {
      async take(name) {
        const lock = mutex(name);
        await lock.acquire();
        return lock;
      },
      free: (lock) => lock.release(),
    };
  },
};

const locks = libraries[library]();

(async () => {
  for (let i = 0; i < Number(rounds); i++) {
    const lock = await locks.take(name);
    fs.writeFileSync(file, String(Number(fs.readFileSync(file, 'utf8')) + 1));
    await locks.free(lock);
  }
  client.disconnect();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
