// Measures the semaphore of redis-semaphore: a number of tasks acquire and release it in a loop, for a
// time after a warm-up. Writes the pairs of each task as a JSON array.
//
// Arguments: host and port of Redis, the limit, the number of tasks, and the time in ms.
'use strict';
const Redis = require('ioredis');
const { Semaphore } = require('redis-semaphore');

const [host, port, limit, tasks, span] = process.argv.slice(2);
const client = new Redis({ host, port: Number(port) });

async function loop(until, from) {
  let pairs = 0;
  while (Date.now() < until) {
    const semaphore = new Semaphore(client, 'job', Number(limit), { acquireTimeout: 60000 });
    await semaphore.acquire();
    await semaphore.release();
    if (Date.now() >= from && Date.now() < until) pairs++;
  }
  return pairs;
}

const from = Date.now() + Number(span) / 4;
const until = from + Number(span);
Promise.all(Array.from({ length: Number(tasks) }, () => loop(until, from))).then((counts) => {
  console.log(JSON.stringify(counts));
  client.disconnect();
});
