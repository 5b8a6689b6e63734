// Shows what the semaphore of redis-semaphore does in the cases of docs/rivals-shared.md. Writes what it finds
// as a JSON object.
//
// Arguments: host and port of Redis.
'use strict';
const Redis = require('ioredis');
const { Semaphore } = require('redis-semaphore');

const [host, port] = process.argv.slice(2);
const client = new Redis({ host, port: Number(port) });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const semaphore = (key, limit, options) =>
  new Semaphore(client, key, limit, { acquireTimeout: 20000, onLockLost() {}, ...options });

// Two hold a limit of 2, when one comes with a limit of 3 and another one with 2.
async function otherLimit() {
  const held = [semaphore('limit', 2), semaphore('limit', 2)];
  for (const one of held) await one.acquire();
  const three = semaphore('limit', 3);
  const two = semaphore('limit', 2, { acquireAttemptsLimit: 1 });
  const found = { raisedAdmits: await three.tryAcquire(), formerAdmits: await two.tryAcquire() };
  for (const one of [...held, three]) await one.release();
  return found;
}

// One holder renews its share, the other one is dead.
async function deadHolder() {
  const alive = semaphore('dead', 2, { lockTimeout: 1000, refreshInterval: 200 });
  const dead = semaphore('dead', 2, { lockTimeout: 1000, refreshInterval: 0 });
  const next = semaphore('dead', 2, { lockTimeout: 1000 });
  await alive.acquire();
  await dead.acquire();
  const found = { deadIsReplaced: await next.tryAcquire(), aliveKeepsIt: alive.isAcquired };
  await next.release();
  await alive.release();
  return found;
}

// The holder of a limit of 1 has a lockTimeout of 20 s, and the next one has 200 ms.
async function otherTimeout() {
  const holder = semaphore('timeout', 1, { lockTimeout: 20000 });
  await holder.acquire();
  await pause(400);
  const next = semaphore('timeout', 1, { lockTimeout: 200, acquireAttemptsLimit: 1 });
  const found = { shorterTimeoutAdmitsASecond: await next.tryAcquire(), firstIsTold: !holder.isAcquired };
  await next.release();
  await holder.release();
  return found;
}

// The first waiter looks once in two seconds, the second one every 10 ms.
async function order() {
  const holder = semaphore('order', 1);
  await holder.acquire();
  const served = [];
  const wait = async (name, retryInterval) => {
    const waiter = semaphore('order', 1, { retryInterval });
    await waiter.acquire();
    served.push(name);
    await waiter.release();
  };
  const first = wait('first', 2000);
  await pause(200);
  const second = wait('second', 10);
  await pause(50);
  await holder.release();
  await Promise.all([first, second]);
  return { served };
}

(async () => {
  const found = {};
  for (const show of [otherLimit, deadHolder, otherTimeout, order]) Object.assign(found, await show());
  console.log(JSON.stringify(found));
  client.disconnect();
})();
