// Package etcddoctor adds the checks of etcd to package doctor, in a program that imports it.
package etcddoctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdstore"
)

func init() { doctor.Register(examine) }

// examine reads the status of each member that the client has an address of. Whether the user may
// do what locks need, and whether there is a majority, the probe of package doctor shows.
func examine(ctx context.Context, store driver.Store, _ doctor.Options) (all []doctor.Finding, isEtcd bool, err error) {
	s, ok := store.(*etcdstore.Store)
	if !ok {
		return nil, false, nil
	}
	add := func(check, server string, severity doctor.Severity, found, want, remedy string) {
		all = append(all, doctor.Finding{Check: check, Server: server, Severity: severity, Found: found, Want: want, Remedy: remedy})
	}
	clusters := map[uint64]bool{}
	for _, endpoint := range s.Client().Endpoints() {
		addr := endpoint[strings.LastIndex(endpoint, "/")+1:]
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		state, err := s.Client().Status(limited, endpoint)
		cancel()
		if err != nil {
			add("etcd.member", addr, doctor.Warning, "it cannot be reached: "+err.Error(), "all members in service", "start it, or leave it out of the URL")
			continue
		}
		clusters[state.Header.ClusterId] = true
		switch {
		case state.IsLearner:
			add("etcd.member", addr, doctor.Failure, "it is a learner, and refuses requests", "a member that votes", fmt.Sprintf("etcdctl member promote %x", state.Header.MemberId))
		case state.Leader == 0:
			add("etcd.member", addr, doctor.Warning, "it has no leader: it is cut off, or a majority of the members is down", "a connection to the other members", "etcdctl endpoint health --cluster")
		default:
			add("etcd.member", addr, doctor.OK, "it serves, has a leader, and is of version "+state.Version, "", "")
		}
		if revokesWrongly(state.Version) {
			add("etcd.version", addr, doctor.Warning, "version "+state.Version+" may end a lease that is kept alive, while a leader that was deposed is slow", "3.4.31, 3.5.13 or later", "upgrade it")
		}
		if alarms := strings.Join(state.Errors, "; "); strings.Contains(alarms, "NOSPACE") || strings.Contains(alarms, "CORRUPT") {
			add("etcd.space", addr, doctor.Failure, "the cluster grants nothing: "+alarms, "no alarm",
				"etcdctl compact and defrag, a greater --quota-backend-bytes, or another member for one whose data differs; then etcdctl alarm disarm")
		}
	}
	if len(clusters) > 1 {
		add("etcd.members", "", doctor.Failure, "the addresses are of two clusters, each of which grants every lock", "members of one cluster", "leave the addresses of the other cluster out of the URL")
	}
	return all, true, nil
}

// revokesWrongly reports whether a leader of a release that was deposed may revoke leases (etcd
// issue 15247).
func revokesWrongly(version string) bool {
	var major, minor, patch int
	n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	return n < 3 || major <= 3 && minor <= 5 && !(minor > 3 && patch >= map[int]int{4: 31, 5: 13}[minor])
}
