//go:build unix

package contend

import "github.com/go-redsync/redsync/v4"

// Quorum lists the libraries for a majority of independent Redis servers.
func Quorum() []Kind {
	return []Kind{
		holdfastQuorum(),
		redsyncGoredis("redsync, 5 nodes", "go-redis with ContextTimeoutEnabled"),
		redsyncGoredis("redsync, 5 nodes, fail fast", "the same WithFailFast, which may leave keys behind on slow nodes",
			redsync.WithFailFast(true)),
	}
}
