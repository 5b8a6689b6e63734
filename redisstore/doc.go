// Package redisstore keeps locks in Redis (6.2 or later) or Valkey: a single
// server, a master with replicas watched by Sentinel, or a cluster. It works
// with the caller's own client of go-redis.
//
//	locks := holdfast.New(redisstore.New(client, nil), nil)
//
// The lock "name" is the key "lock:name", a string that begins with the owner's secret, acquired as
// by SET NX PX and released by comparing and deleting. Clients of other languages that lock in this
// way exclude this one and are excluded, if they use the same key: Lock of redis-py, redlock and
// redis-semaphore (Mutex) of npm, redsync and redislock of Go. A lock that they hold is shown as
// held, without a holder. redis-semaphore puts mutex: in front of its names: use the Prefix
// "mutex:" beside it. A key of any other type (of Redisson, of Symfony) is a lock that is held,
// too, until it is gone. Break does not delete a key that is not a string, since it may be data of
// an application.
//
// # Guarantees
//
// Exclusion among all programs that reach the server, as long as it forgets nothing. Fencing
// tokens, granted in one step with the lock, that rise strictly: over expiry, break, steps of the
// server's clock forward and back, and the loss of all data (a counter that was lost begins anew at
// the server's clock in microseconds). Over the loss of data they rise only as far as that clock
// stands above what was granted: not if it is set back at the same time, and for a lock that was
// requested with a floor, not before the clock has passed that. A floor concerns its lock alone,
// and raises the tokens of no other. Expiry is counted by the server's clock. After a crash of the
// holder, the lock is free when its TTL has expired.
//
// Acquire, Release and a batch of renewals take one round trip each; calls that are made at the
// same time share round trips. Waiters of all clients stand in a queue, in the order in which they
// came: a release makes the next of them the holder and notifies it, in the same step. Nobody
// overtakes, and no other client gets a notice. A hold that is broken is notified, too. A place
// costs a request in 1.7 s, or in a third of its TTL if that is shorter, and its Store a PING each
// 5 s on the one connection for notices, which it makes with its first place, or 200 ms after its
// first hold. A waiter whose process has ended delays the others until its place has run out.
// Clients of other kinds have no places and notify nobody: the first in line looks at each renewal
// of its place while one of them has the lock. If the user may not subscribe or publish, waiters
// find their turn by these renewals, too.
//
// Shared and limited holds of a name tolerate each other; each has its own TTL and token, and the
// release or the end of one changes no other. They exclude exclusive holds, and clients of other
// kinds, which find the key of the lock until the last of them has ended. A run of a script admits
// 200 waiters at most and drops 2,000 places that have ended, so that a crowd does not hold up
// other locks. Lookup, List and Break of a name read all of its holds in one script: ten thousand
// hold up the server for tens of milliseconds.
//
// A server that works and cannot serve now answers with a [driver.RetryError]: it is reading its
// data, has lost its master or its replicas, is moving a hash slot, or abstains because of
// RestartGuard. Waiters for a lock go on waiting. One that is at its maximum of clients closes the
// connection, often before its answer is read: the error is then that of a lost connection.
//
// # What can go wrong
//
// A server that forgets locks lets two clients hold one: when it is started
// again without its data or with old data (appendonly yes with appendfsync
// always keeps all), when a replica is promoted that had not got the latest
// writes, or as planned while the old master still grants, when it is flushed, and when
// maxmemory-policy lets it evict keys. The
// tokens still rise then, so that a resource that refuses lower tokens than it
// has seen stays safe. [Options].RestartGuard closes the gap after a restart, a
// flush and a promotion, except while an old master that is cut off goes on
// granting; [Options].MinReplicas makes it narrower. package doctor, and
// "holdfast doctor", look for settings of this kind.
//
// A lock that is deleted by hand or evicted ends all holds that it has, and their renewals report
// that. If only the keys of its holders beside it are evicted, their renewals report the
// loss. Until the last of these would have ended, an exclusive request and clients of other kinds
// are kept out, and their slots of a Limit stay taken.
//
// Redis counts expiry on its wall clock. If that is set forward, locks expire early, while their
// holders still rely on them; if it is set back, they expire late.
//
// A request that was sent on a connection that then hung may reach the server long after its caller
// has given up and has released the lock in vain: the lock is taken until its TTL expires then, by
// nobody.
//
// A replica refuses every request, also those that only read: what it has may be old. With
// replica-read-only no it does so under [Options].RestartGuard only, and otherwise grants locks.
//
// A notice may be lost with its connection, and a release on a full server may admit nobody: the
// next in line is then admitted by the renewal of its place, up to 1.7 s late. A client that hangs
// or has ended costs the others the rest of its place, 5 s at most.
//
// In a cluster messages go to all of its nodes. A List that runs while a slot moves may miss the
// names in that slot.
//
// # Server set-up
//
// None is needed; "maxmemory-policy noeviction" is advised. A user of the ACL needs the keys
// ~lock:* and, in a cluster, ~{*}lock:*, the channels &lock:*, and the commands eval, evalsha,
// exists, get, set, incrby, del, pttl, pexpire, zadd, zcount, zscore, zrange, zrangebyscore,
// zrem, zremrangebyscore, hset, hget, hdel, time, scan, hello, ping, publish, subscribe, type (for
// an error of Break), and with the options info and wait. A database other than 0 needs select, and
// a cluster cluster|slots. Every key that a script touches is among its KEYS. Messages have a hash
// of the owner and the token: they prove nothing.
//
// The value of a lock has the owner's secret on its first line, and on the lines behind: token,
// number of tokens and channel; begin (seconds, microseconds), holder, metadata. The value of a
// name that is kept begins with released:, and that of shared or limited holds with shared:. Beside
// the locks there are keys that contain the control character 0x1f: one counter of tokens; in a
// cluster, one for each hash slot that was ever used, so at most 16384. Where locks are requested
// with a floor, as a quorum does, a sorted set beside the counter has those with tokens that the
// counter has not reached. A lock with places or with shared or limited holds has two keys more,
// which end a minute after the latest end that one of these had.
//
// A client of a cluster must be made as one: a server that is a node of a cluster
// grants no lock to a client that does not know it.
//
// # Services
//
// Every key that a script touches is declared, and no command is unusual, so that services that
// speak the protocol of Redis 6.2 can do. Valkey 8 is tried: it runs all tests. By their
// documentation:
//
//   - ElastiCache and MemoryDB without cluster mode, Azure Cache, Memorystore: as one server, with
//     rediss. Their failover is asynchronous, except MemoryDB, which loses no write.
//   - The same with cluster mode, and ElastiCache Serverless: as redis+cluster with tls=true.
//   - Azure Managed Redis and Redis Enterprise: as redis+cluster under the policy for OSS clusters;
//     under the other a prefix with a hash tag, as {lock}:, since a script may use one slot. Not
//     databases that are active in several regions: two clients can hold one lock.
//   - Upstash: as one server, with rediss, and not with replicas that are read from. Each renewal of
//     a place or hold is a command that is paid for.
//   - Dragonfly, which refuses keys that are made up by default; KeyDB, not with active replicas;
//     kvrocks: as one server.
//
// Where a service refuses PUBLISH in a script or SUBSCRIBE, waiters find their turn by the renewal
// of their places, up to 1.7 s late.
//
// # URL
//
//	redis://[user:password@]host[:port][/db]
//	rediss://…                     the same over TLS
//	redis+unix://[user:password@]/path/to/socket
//	redis+sentinel://[user:password@]host[:port]/master[/db]
//	redis+cluster://[user:password@]host[:port]
//
// The host of redis+sentinel is that of a Sentinel, the user and password those
// of the Redis servers. Parameters:
//
//	prefix             in front of names, default "lock:"; may be empty
//	restart_guard      Options.RestartGuard, as in 1m
//	min_replicas       Options.MinReplicas
//	replica_timeout    Options.ReplicaTimeout, as in 500ms
//	nodes              more Sentinels or cluster nodes: host:port,host:port
//	tls                true for TLS to a cluster or to Sentinels and servers
//	db                 with redis+unix: the database
//	ca_file            a PEM file of certificate authorities, instead of the system's
//	cert_file          a PEM file of the client's own certificate, for a server that wants one
//	key_file           a PEM file of its key
//	server_name        the name in the server's certificate, if not the host
//	sentinel_user      for the Sentinels
//	sentinel_password  for the Sentinels
package redisstore
