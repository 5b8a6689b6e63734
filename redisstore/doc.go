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
// same time share round trips. A lost reply does no harm: the same acquire sent again is
// recognized. The server wakes waiters when a lock is free or has another holder, whichever client
// or expiry is the cause, with no set-up and nothing to poll. A waiting process costs one GET for
// each renewal of the holder, an attempt at its first, one each 10 to 20 s, and a PING after a
// silence of 2 s that doubles up to 40 s. With a server
// that does not allow CLIENT TRACKING (miniredis is one) Watch returns driver.ErrUnsupported,
// whatever Guarantees says, and waiters try at intervals.
//
// A server that works and cannot serve now answers with a [driver.RetryError]: it is reading its
// data, has lost its master or its replicas, is at its maximum of clients (this is only seen by
// stores that are opened by a URL), is moving a hash slot, or abstains because of RestartGuard.
// Waiters for a lock go on waiting.
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
// granting; [Options].MinReplicas makes it narrower. [Store.Warnings] looks for
// settings of this kind.
//
// Redis counts expiry on its wall clock. If that is set forward, locks expire early, while their
// holders still rely on them; if it is set back, they expire late.
//
// A request that was sent on a connection that then hung may reach the server long after its caller
// has given up and has released the lock in vain: the lock is taken until its TTL expires then, by
// nobody.
//
// # Server set-up
//
// None is needed; "maxmemory-policy noeviction" is advised. A user of the ACL
// needs the keys ~lock:* and, in a cluster, ~{*}lock:*, and the commands eval,
// evalsha, get, getrange, set, del, pttl, pexpire, pexpiretime, zadd,
// zcard, zscore, zrange, zremrangebyscore, time, scan, hello, ping,
// type (for an error of Break), client|tracking, and with the options info and wait; config|get with RestartGuard, so
// that a replica that comes or goes does not make the server abstain.
//
// The value of a lock has the owner's secret on its first line, and the public part on the lines
// behind: token, begin (seconds, microseconds), holder, metadata. Beside the locks there are keys
// that contain the control character 0x1f: one counter of tokens; in a cluster, one for each hash
// slot that was ever used, so at most 16384. Where locks are requested with a floor, as a quorum
// does, a sorted set beside the counter has those with tokens that the counter has not reached: in
// a quorum, the locks taken in the last second or so. One long member of it is no lock: because of
// it the server keeps a tree, and not a list, which takes longer.
//
// A client of a cluster must be made as one: a server that is a node of a cluster
// refuses this package's scripts from a client that does not know it.
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
