// Package etcdstore keeps locks in etcd, version 3.4 or later, over its official client.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	locks := holdfast.New(etcdstore.New(client, nil), nil)
//	defer locks.Close()
//
// A program without a client of its own imports the package for its URLs, and calls
// holdfast.Open(ctx, "etcd://localhost:2379", nil).
//
// # Guarantees
//
// Every grant, renewal and release is confirmed by a majority of the members. Holds survive the
// death of the leader and of any minority, and the restart of all members. No member's clock and no
// client's clock is compared with another: the server counts leases on its own, and a client counts
// from before its request. A server of 3.4 ends the hold of a client
// that has died as much later as its wall clock was set back meanwhile.
//
// The store keeps a queue for each name. What ends a hold, a Release, a Break or the end of its
// lease, admits the next place in the same revision, and only the client of that place is notified:
// each place watches the entry before it. A watch goes on where it was, and misses nothing.
//
// Fencing tokens rise strictly for each name. They are microseconds since 1970 by the clock of the
// client that is granted one, or if its clock is behind, a little more than the last token of the name.
// A floor affects only its own name. The last token of a name is kept for two days at least; after
// that a token is smaller than an earlier one only if the clocks of two clients differ by more.
//
// The public record of a hold is in a key of its own, below PREFIX/rec/. A role that may read only
// these keys can list and look up locks, and writes none. The secret of an owner is nowhere in
// etcd: there is a hash of it below PREFIX/own/.
//
// # What can go wrong
//
// Leases have whole seconds, 2 s at least by default. A hold, a place and a keep may last up to 4 s
// longer than requested (see Guarantees().Grain). Each change of the leader starts the time of all
// of them anew: the hold of a client that has died, and a keep, end only when no change has come
// for their whole time. None ends sooner. A mark of package once is a keep: after a change of the
// leader its work is not repeated for that much longer, and never, if the leader changes more often.
// A cluster with an election timeout above a second has longer leases.
//
// Servers of 3.4 check fewer rights than those of 3.6: a user that may only read can keep a hold
// alive.
//
// In an election under 44 faults in ten minutes, no two leaders overlapped. Of concurrency.Election
// of etcd's own client 11 pairs did, for up to 1.7 s, in the same faults; it was without a leader
// for 5.5 % of the time, an election here for 8.9 %, because of the longer leases. See
// docs/guarantees.md.
//
// While there is no leader nothing is granted or renewed. A TTL of 10 s or more survives an election
// with the default timeouts. A cluster whose space is used up (the alarm NOSPACE) grants no lease, no
// keep, and no lock but a few under load; it still renews and releases, and the errors show it.
//
// A follower forwards each keep-alive to the leader. A client at a follower renews at most 16 locks
// in a round trip between the two, 400 a second at 40 ms.
//
// Releases before 3.4.31 and 3.5.13 may revoke leases wrongly if a leader that was deposed is slow:
// then a lock has two holders, whose tokens differ. A restored snapshot without --bump-revision, and
// members that have lost their disks, forget locks like any store. Somebody with the right to write
// below the prefix can take and break locks.
//
// A user is authenticated again when its token has expired. Servers of 3.4, at least 3.4.23, refuse
// that to a client which still has the old token: a client of the caller then fails each request,
// by its deadline. One that was opened from a URL goes on.
//
// All addresses must be of one cluster: each of two clusters would grant a lock. The command
// "holdfast doctor" tells, unless both were started with the same --initial-cluster-token.
//
// There are no shared and no limited locks.
//
// A client of the caller writes a line on standard error for each retry of a request, some four a
// second while there is no connection, unless its Config has Logger: zap.NewNop(). An error shows
// why there is no connection if the store was opened from a URL.
//
// # Server set-up
//
// None. A user needs a role with the rights to read and write below the prefix; one that only lists
// and looks up locks, as a dashboard does, needs the second role. Automatic compaction is advised,
// as for every use of etcd.
//
//	etcdctl role grant-permission --prefix=true ROLE readwrite holdfast/
//	etcdctl role grant-permission --prefix=true READER read holdfast/rec/
//
// The package is a module of its own, so that programs without it do not depend on gRPC:
//
//	go get github.com/holdfast-go/holdfast/etcdstore@latest
//
// The command holdfast executes the one with this store, if that is installed:
//
//	go install github.com/holdfast-go/holdfast/etcdstore/cmd/holdfast-etcd@latest
//
// # URL
//
//	etcd://host1:2379,host2:2379/prefix
//	etcds://host:2379/prefix?ca_file=ca.pem&cert_file=c.pem&key_file=k.pem&server_name=name
//
// etcds uses TLS; all parameters are optional. The port is 2379 and the prefix holdfast/ by default.
// Keys begin with the path and a slash.
// The user and the password are those of the environment variables HOLDFAST_ETCD_USER and
// HOLDFAST_ETCD_PASSWORD, or in the URL. They are checked when the store is opened.
package etcdstore
