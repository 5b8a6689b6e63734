// Package quorumstore makes one store of a majority of others, so that locks survive the loss of a
// minority of them. Over independent Redis servers it is what is known as Redlock. The nodes may be
// stores of other kinds, and mixed. Two are refused: etcd, which is a quorum itself, and advisory
// locks, which have neither holders nor floors of tokens.
//
// Every request goes to all nodes at once and returns as soon as enough of them have replied to
// decide it, for or against. A minority that is dead, slow or hung costs nothing where the others
// agree, except to a Break, which waits for all replies.
//
// # Guarantees
//
// A lock is held by the owner that a majority of the nodes has granted it to, at one time, within
// its TTL as counted from before the requests, less 1% and 2 ms for the drift of clocks. A majority
// is half of the nodes, rounded down, and one more: 2 of 3, 3 of 4, 3 of 5. Two majorities share a
// node, and a node grants a name to one owner at a time.
//
// Fencing tokens are given if the nodes give them: all of them, or none. The client proposes a
// token above what the nodes would choose by themselves (its clock, and a second more; further
// above where it has learnt that their clocks are ahead), and the nodes raise theirs to it. If a
// majority grants one and the same token, that is the token, in one round trip. If not, all is
// released, and the next attempt has a higher proposal. The tokens of one name are unique and rise
// in the order of the grants, whatever clocks do and whenever holds expire: two majorities share a
// node, and that node has granted both tokens, the later one higher. This needs nothing but nodes
// that never grant a token twice.
//
// What all nodes claim decides the rest. Restart and Failover: if they differ, holds may be
// forgotten, since one node that forgets a hold can be one too many. Each node must be one that all
// clients reach: a file on each host is no node that the hosts share.
//
// A quorum has no Queue: nodes get the requests in different orders, and would admit different
// owners. Its waiters try again after pauses of up to 250 ms (holdfast.Backoff), without notices.
//
// Shared and limited holds are not supported. With a Limit of 2 on each of 3 nodes, 3 holders can
// have a majority: A and B on the first node, B and C on the second, A and C on the third. Shared
// holds get different tokens on different nodes if their requests cross, again and again for as
// long as readers keep coming.
//
// An attempt is one vote. If a majority tells one hold in its way, the name is held. If there is no
// winner, the attempt is released, and the error is a [driver.RetryError] with a short random time:
// a new owner may have a majority then. A caller that waits (its request has a Place) is told the
// hold of a rival instead, with that time as Remaining, if rivals have so many nodes that the
// others are no majority. If so many nodes refuse it, it ends at once; nodes that hang are waited
// for, up to Options.Timeout. If nodes that cannot serve now would make a majority, the error is a
// RetryError with the time after which they will. An error lists the reply of each node. It matches
// [driver.ErrNotApplied] only if no majority can have granted the attempt.
//
// # What can go wrong
//
// Clocks. Those that differ do no harm, except that a node whose clock is over a second ahead has
// no part in the first holds of a Store, which learns of the clock by them. One that runs faster by
// more than 1%, or steps while it is used to expire holds (Redis uses the wall clock), may free a
// lock early on that node. A node refuses a token that is more than [driver.MaxLead] above its
// clock: a client with a clock that far ahead gets [driver.ErrInvalid], and a node with a clock
// that far behind has no vote. A client more than an hour behind the nodes proposes too little:
// most of its attempts end with "the tokens granted do not agree".
//
// A node that forgets. A hold on 2 of 3 nodes, one of which restarts without its data, leaves room
// for a second holder; so does failing over to a replica that had not yet got the hold. Keep the
// data safe on every node (fsync before the answer), or keep a node that lost it out for longer
// than the greatest TTL after its restart, by hand or by a node's own guard. A node that forgets
// its counters without that can also make tokens fall, where its clock does not stand above them.
//
// A hold does not grow back. A node that has lost its part of a hold, or was down when it was
// granted, does not get it again at a renewal: that could undo a Break. A hold is lost when a
// majority of the nodes has been restarted without data, one after the other.
//
// A late acquisition. One that a node has not answered by twice Options.Timeout may be executed
// after the release that undoes it, which is therefore sent again until the TTL is over. One that
// comes later still keeps its part of the name until the TTL, as do parts at a node that owes
// replies to hundreds of requests. If that happens at a majority, the name is taken as long.
//
// The same node twice. Two stores that lead to one server have two votes, which makes a majority
// worth nothing. Equal URLs are refused. Two addresses, databases or prefixes of one server are not
// noticed. Nor are clients of other kinds told apart: two that have a node each look like one hold.
//
// # Server set-up
//
// Three or five nodes that fail independently: on different machines, without replication among
// them. An even number bears no more losses than the odd one below it. All clients must use the
// same nodes; to exchange one, stop all for the greatest TTL. A node must not let the floor of one
// name raise the tokens of others (memstore and redisstore do not), or clients that take many names
// at once see the nodes disagree.
//
// # URL
//
//	quorum:?node=URL&node=URL&node=URL
//
// The URLs of the nodes are escaped as values of a query; [URL] does that. The parameter timeout is
// Options.Timeout, as in 500ms.
package quorumstore
