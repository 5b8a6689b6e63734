// A client of a lock library of npm that does as it is told on its standard
// input, a command on a line, and answers each with a line:
//
//	take NAME               waits for the lock
//	try NAME                makes one attempt: "held" or "busy"
//	free                    releases what was taken last
//	count NAME FILE ROUNDS  adds one to the number in a file under the lock
//
// Arguments: the library, and host and port of Redis. The key of a lock is
// mutex:NAME, since redis-semaphore allows no other.
'use strict';
const fs = require('fs');
const readline = require('readline');
const Redis = require('ioredis');

const [library, host, port] = process.argv.slice(2);
const client = new Redis({ host, port: Number(port) });
const ttl = 60000;
const pause = 2; // between attempts, in ms

// What a library calls a lock that is held by somebody else.
const busy = (error) => {
  if (['LockError', 'ExecutionError', 'ResourceLockedError'].includes(error.name)) return null;
  throw error;
};

const libraries = {
  redlock4() {
    const Redlock = require('redlock4');
    const once = new Redlock([client], { retryCount: 0 });
    const waits = new Redlock([client], { retryCount: -1, retryDelay: pause, retryJitter: pause });
    return {
      take: (name) => waits.lock('mutex:' + name, ttl),
      try: (name) => once.lock('mutex:' + name, ttl).catch(busy),
      free: (lock) => lock.unlock(),
    };
  },
  redlock5() {
    const Redlock = require('redlock').default;
    const redlock = new Redlock([client], { retryDelay: pause, retryJitter: pause });
    return {
      take: (name) => redlock.acquire(['mutex:' + name], ttl, { retryCount: -1 }),
      try: (name) => redlock.acquire(['mutex:' + name], ttl, { retryCount: 0 }).catch(busy),
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
      async try(name) {
        const lock = new Mutex(client, name, { lockTimeout: ttl, acquireAttemptsLimit: 1 });
        return (await lock.tryAcquire()) ? lock : null;
      },
      free: (lock) => lock.release(),
    };
  },
};

const locks = libraries[library]();
let last;

const commands = {
  async take(name) {
    last = await locks.take(name);
    return 'held';
  },
  async try(name) {
    const lock = await locks.try(name);
    if (!lock) return 'busy';
    last = lock;
    return 'held';
  },
  async free() {
    await locks.free(last);
    return 'free';
  },
  async count(name, file, rounds) {
    for (let i = 0; i < Number(rounds); i++) {
      const lock = await locks.take(name);
      fs.writeFileSync(file, String(Number(fs.readFileSync(file, 'utf8')) + 1));
      await locks.free(lock);
    }
    return 'counted';
  },
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ');
    console.log(await commands[command](...words));
  }
  client.disconnect();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
