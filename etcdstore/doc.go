// Package etcdstore keeps locks in etcd, version 3.4 or later, over its official client.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
//	locks := holdfast.New(etcdstore.New(client, nil), nil)
//
// A program without a client of its own imports the package for its URLs, and calls
// holdfast.Open(ctx, "etcd://localhost:2379", nil).
//
// # Guarantees
//
// Every grant, renewal and release is confirmed by a majority of the members. Holds survive the
// death of the leader and of any minority, and the restart of all members. No clock is compared
// with another: the server counts leases on its own, and a client counts from before its request.
//
// The store keeps a queue for each name, of exclusive, shared and limited entries. What ends a
// hold, a Release, a Break or the end of its lease, admits the next place in the same revision, and
// the client of that place is notified. So is that of a hold that is broken or deleted by hand,
// once it is 50 ms old, or 0.2 s if it came by its turn. What a watch misses, as while a member
// hangs, the next renewal finds.
//
// All entries of a Store with one TTL, in whole seconds, have one lease, as with one session of
// etcd's own client. A keep has a lease of its own. An entry that its owner does not renew is ended
// by the Store, and by the end of the lease if the process is gone.
//
// Fencing tokens rise strictly for each name. A token is the sum of the revision that has made the
// entry and a number that the first client of a prefix has written, by its clock, in microseconds
// since 1970: so tokens are above those of a cluster that has lost its data, and of the store
// before etcd. When a prefix is used again after another store, its key "base" must be deleted
// first. A cluster is a quorum itself, and no node of one (package quorumstore).
//
// # What can go wrong
//
// Leases have whole seconds, 2 s at least by default. A hold, a place and a keep may last up to 4 s
// longer than requested. When a process dies, or its Store is closed, what it leaves on a lease of
// several entries ends within the TTL and 4 s from then: a hold may last a third of its TTL longer,
// and one with NoRenew, or detached, its whole TTL. An adopted hold lasts as long as the lease that
// it had shared, if that is longer than requested. Each change of the leader starts the time of all
// leases anew, and a server of 3.4 ends one as much later as its wall clock was set back meanwhile.
// None ends sooner. A ReleaseKeep that is sent again leaves an empty lease until the keep is over.
// A place whose key is deleted by hand may be told that it holds, until its renewal 0.1 s later.
//
// While there is no leader nothing is granted or renewed. A TTL of 10 s or more survives an
// election with the default timeouts. A cluster whose space is used up (the alarm NOSPACE) grants
// no lease, no keep, and no lock but a few under load. It still releases, and renews each hold on
// the lease that the hold has. A hold that needs another lease ends: one that came by its turn in
// the queue, within 5 s, one that Extend gives another TTL, and one whose lease an Acquire without
// an answer had requested as well.
//
// A request for a name goes through all keys that it has had since the last compaction: one if
// nobody has waited, while 1,000 waiters take 0.6 of a core. Automatic compaction is advised.
//
// Releases before 3.4.31 and 3.5.13 may revoke leases wrongly if a leader that was deposed is slow:
// then a lock has two holders, whose tokens differ. A restored snapshot, and members that have lost
// their disks, forget locks like any store; without --bump-revision, tokens go on from those of the
// snapshot. What a snapshot brings back that was over ends only if a client of it notices a
// revision that falls. Each of two clusters grants a lock: all addresses must be of one.
//
// A client of the caller writes some four lines a second on standard error while there is no
// connection, unless its Config has Logger: zap.NewNop(). With a user, on a server of 3.4, it fails
// each request once its token has expired. The client of a URL does neither.
//
// # Server set-up
//
// None. A user with the first role can take and break locks, and one with the second only list and
// look them up. Servers of 3.4 check fewer rights: a user that may only read can keep a hold alive.
//
//	etcdctl role grant-permission --prefix=true ROLE readwrite holdfast/
//	etcdctl role grant-permission --prefix=true READER read holdfast/lock/
//
// The package is a module of its own, so that programs without it do not depend on gRPC. The
// command holdfast executes the one with this store, if that is installed:
//
//	go install github.com/holdfast-go/holdfast/etcdstore/cmd/holdfast-etcd@latest
//
// # URL
//
//	etcd://host1:2379,host2:2379/prefix
//	etcds://host:2379/prefix?ca_file=ca.pem&cert_file=c.pem&key_file=k.pem&server_name=name
//
// etcds uses TLS; all parameters are optional. The port is 2379 and the prefix holdfast/ by
// default. The user and the password are those of the environment variables HOLDFAST_ETCD_USER and
// HOLDFAST_ETCD_PASSWORD, or in the URL. They are checked when the store is opened.
package etcdstore
