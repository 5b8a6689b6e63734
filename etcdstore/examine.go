package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/transport"
)

var _ driver.Examiner = (*Store)(nil)

// The checks of a cluster.
const (
	checkMembers = "etcd.members"
	checkMember  = "etcd.member"
	checkVersion = "etcd.version"
	checkTLS     = "etcd.tls"
	checkSpace   = "etcd.space"
	checkRights  = "etcd.rights"
	checkTTL     = "etcd.ttl"
)

const (
	statusTimeout = 2 * time.Second  // of the status of a member
	electionTime  = 10 * time.Second // after the leader has died, with the default timeouts
)

// Examine implements [driver.Examiner]. It reads the status of each member that the client has an
// address of, and the list of members. For the rights it sends a transaction whose condition is
// false, which the server checks as if it wrote.
func (s *Store) Examine(ctx context.Context, o driver.Examination) ([]driver.Finding, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	addrs := s.client.Endpoints()
	states, errs := s.statuses(ctx, addrs)
	first := slices.IndexFunc(states, func(state *clientv3.StatusResponse) bool { return state != nil })
	for i, state := range states {
		if state == nil || state.Header.ClusterId == states[first].Header.ClusterId {
			continue
		}
		return []driver.Finding{{
			Check: checkMembers, Severity: driver.SeverityFailure,
			Found: fmt.Sprintf("the addresses are of two clusters, each of which grants every lock: %s of %x, %s of %x",
				addrs[first], states[first].Header.ClusterId, addrs[i], state.Header.ClusterId),
			Want: "members of one cluster", Remedy: "leave the addresses of the other cluster out of the URL",
		}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestBound+statusTimeout)
	defer cancel()
	var list *clientv3.MemberListResponse
	err := s.send(ctx, func(ctx context.Context) (err error) {
		list, err = s.client.MemberList(ctx)
		return err
	})
	var all []driver.Finding
	if err == nil {
		all = s.examineMembers(ctx, list, addrs, states)
	}
	space := driver.Finding{Check: checkSpace, Severity: driver.SeverityOK, Found: "no member has an alarm"}
	for i, addr := range addrs {
		addr = hostOf(addr)
		member := driver.Finding{Check: checkMember, Server: addr, Severity: driver.SeverityOK, Found: "it serves, and has a leader"}
		switch state := states[i]; {
		case errs[i] != nil:
			member.Severity, member.Found = driver.SeverityWarning, "it cannot be reached: "+errs[i].Error()
			member.Want, member.Remedy = "all members in service", "start it, or leave it out of the URL"
		case state.IsLearner:
			member.Severity, member.Found = driver.SeverityFailure, "it is a learner, and refuses requests"
			member.Want, member.Remedy = "a member that votes", fmt.Sprintf("etcdctl member promote %x", state.Header.MemberId)
		case state.Leader == 0:
			member.Severity, member.Found = driver.SeverityWarning, "it has no leader: it is cut off, or a majority of the members is down"
			member.Want, member.Remedy = "a connection to the other members", "etcdctl endpoint health --cluster"
		}
		if all = append(all, member); errs[i] != nil {
			continue
		}
		all = append(all, examineVersion(addr, states[i].Version))
		for _, text := range states[i].Errors {
			if strings.Contains(text, "NOSPACE") || strings.Contains(text, "CORRUPT") {
				space.Severity, space.Found, space.Want = driver.SeverityFailure, "the cluster grants nothing: "+strings.TrimSpace(text), "no alarm"
				space.Remedy = "etcdctl compact and defrag, or a greater --quota-backend-bytes; then etcdctl alarm disarm"
				if strings.Contains(text, "CORRUPT") {
					space.Remedy = "replace the member whose data differs; then etcdctl alarm disarm"
				}
			}
		}
	}
	if err != nil { // Without a majority there is no list, and no lock.
		return all, s.storeError(err)
	}
	rights, err := s.examineRights(ctx)
	if err != nil {
		return append(all, space), err
	}
	return append(all, space, s.examineTransport(ctx), rights, examineTTL(o.TTL)), nil
}

// statuses reads the status of the members at addrs.
func (s *Store) statuses(ctx context.Context, addrs []string) ([]*clientv3.StatusResponse, []error) {
	states, errs := make([]*clientv3.StatusResponse, len(addrs)), make([]error, len(addrs))
	var group sync.WaitGroup
	for i, addr := range addrs {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			var why atomic.Pointer[string]
			state, err := s.client.Status(context.WithValue(ctx, connectionKey{}, &why), addr)
			states[i], errs[i] = state, explain(err, &why)
		})
	}
	group.Wait()
	return states, errs
}

// examineMembers checks how many members may fail, and reads the status of those that are not among
// addrs. A member without an answer may be that of an address without one.
func (s *Store) examineMembers(ctx context.Context, list *clientv3.MemberListResponse, addrs []string, states []*clientv3.StatusResponse) []driver.Finding {
	serves := map[uint64]bool{}
	unanswered := 0 // addresses
	for _, state := range states {
		if state == nil {
			unanswered++
			continue
		}
		serves[state.Header.MemberId] = state.Leader != 0
	}
	var absent []string
	for _, m := range list.Members {
		if _, ok := serves[m.ID]; !ok && !m.IsLearner && len(m.ClientURLs) > 0 {
			absent = append(absent, hostOf(m.ClientURLs[0])) // An http:// would send the credentials in the clear.
		}
	}
	absentStates, errs := s.statuses(ctx, absent)
	var found []driver.Finding
	for i, addr := range absent {
		f := driver.Finding{Check: checkMember, Server: hostOf(addr), Severity: driver.SeverityNote, Found: "it serves, and is not in the URL", Want: "the addresses of all members", Remedy: "add it to the URL"}
		switch state := absentStates[i]; {
		case state != nil && state.Header.ClusterId == list.Header.ClusterId:
			serves[state.Header.MemberId] = state.Leader != 0
		case unanswered > 0:
			unanswered--
			continue
		case state != nil:
			f.Severity, f.Found = driver.SeverityWarning, "it is not in the URL, and a member of another cluster answers there"
			f.Want, f.Remedy = "its own address in --advertise-client-urls", "correct the address"
		default:
			f.Severity, f.Found = driver.SeverityWarning, "it is not in the URL, and cannot be reached: "+errs[i].Error()
			f.Want, f.Remedy = "all members in service", "start it, or correct its --advertise-client-urls"
		}
		found = append(found, f)
	}
	return append([]driver.Finding{examineSize(list, serves)}, found...)
}

// hostOf returns the host and port of an address of a member.
func hostOf(addr string) string {
	if u, err := url.Parse(addr); err == nil && u.Host != "" {
		return u.Host
	}
	return addr
}

// examineTransport checks where a connection of the client goes: that of its next request.
func (s *Store) examineTransport(ctx context.Context) driver.Finding {
	var to peer.Peer
	_, err := etcdserverpb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{}, grpc.Peer(&to))
	if err != nil && to.Addr == nil {
		return driver.Finding{Check: checkTLS, Severity: driver.SeverityUnknown, Found: "cannot tell: " + err.Error(), Want: "TLS, if the connection leaves this host"}
	}
	_, encrypted := to.AuthInfo.(credentials.TLSInfo)
	return transport.Examine(checkTLS, to.LocalAddr, to.Addr, encrypted, "etcds:// in the URL")
}

// examineSize checks how many members there are, of which some serve.
func examineSize(list *clientv3.MemberListResponse, serves map[uint64]bool) driver.Finding {
	n, serving := 0, 0
	for _, m := range list.Members {
		if m.IsLearner {
			continue
		}
		n++
		if serves[m.ID] {
			serving++
		}
	}
	f := driver.Finding{Check: checkMembers, Severity: driver.SeverityOK, Found: fmt.Sprintf("%d members, of which %d may fail", n, (n-1)/2)}
	if n == 1 {
		f.Found = "it is a single member, which may not fail"
	}
	if serving < n { // A majority serves, or there is no list.
		f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("%d of %d members serve, of which %d may fail", serving, n, max(serving-n/2-1, 0))
		f.Want, f.Remedy = "all members in service", "see the members that do not serve"
		return f
	}
	if n%2 == 0 || n == 1 {
		f.Severity, f.Want, f.Remedy = driver.SeverityNote, "an odd number of members, at least 3", "add a member, first as a learner: see etcd's runtime reconfiguration"
		if n == 1 {
			f.Remedy = "add two members, one after the other and each as a learner first: see etcd's runtime reconfiguration"
		}
	}
	return f
}

// examineVersion warns of releases in which a leader that was deposed, and is slow, may revoke
// leases (etcd issue 15247). It is mended in 3.4.31, in 3.5.13, and in all later ones.
func examineVersion(addr, version string) driver.Finding {
	f := driver.Finding{Check: checkVersion, Server: addr, Severity: driver.SeverityOK, Found: "version " + version}
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n == 3 && (major > 3 || minor > 5 || minor > 3 && patch >= map[int]int{4: 31, 5: 13}[minor]) {
		return f
	}
	f.Severity, f.Found = driver.SeverityWarning, f.Found+" may end a lease that is kept alive, while a leader that was deposed is slow"
	f.Want, f.Remedy = "3.4.31, 3.5.13 or later", "upgrade it"
	return f
}

// examineRights checks the rights of the user.
func (s *Store) examineRights(ctx context.Context) (driver.Finding, error) {
	const name = "holdfast-doctor/rights"
	txn := clientv3.OpTxn([]clientv3.Cmp{never(s.recKey(name, 0))}, []clientv3.Op{
		clientv3.OpPut(s.ownKey(name, name), ""), clientv3.OpPut(s.recKey(name, 0), ""), clientv3.OpPut(s.tokKey(name, 0), ""),
	}, []clientv3.Op{
		clientv3.OpGet(s.prefix+"rec/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(s.prefix+"own/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(s.prefix+"tok/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
	})
	_, err := s.do(ctx, txn)
	f := driver.Finding{Check: checkRights, Severity: driver.SeverityOK, Found: "the user may read and write below " + s.prefix}
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		f.Severity, f.Found, f.Want = driver.SeverityFailure, "the user may not read and write below "+s.prefix, "the right to do both"
		f.Remedy = fmt.Sprintf("etcdctl role grant-permission --prefix=true ROLE readwrite %q", s.prefix)
	case errors.Is(err, rpctypes.ErrNoSpace), errors.Is(err, rpctypes.ErrCorrupt):
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: "+err.Error(), "a cluster without an alarm"
	case err != nil:
		return f, s.storeError(err)
	}
	return f, nil
}

func examineTTL(ttl time.Duration) driver.Finding {
	f := driver.Finding{Check: checkTTL, Severity: driver.SeverityOK, Found: fmt.Sprintf("a TTL of %v survives the election of a leader", ttl)}
	if ttl < electionTime {
		f.Severity, f.Found = driver.SeverityNote, fmt.Sprintf("a TTL of %v may end while a leader is elected", ttl)
		f.Want, f.Remedy = fmt.Sprintf("%v or more", electionTime), "a longer TTL, or --ttl of this command if yours is longer"
	}
	return f
}

// Forget implements [driver.Examiner]. It deletes the last token of a name that is free.
func (s *Store) Forget(ctx context.Context, name string) error {
	if err := s.check(ctx, name); err != nil {
		return err
	}
	_, err := s.write(ctx, name, clientv3.OpTxn(
		[]clientv3.Cmp{absent(s.recKey(name, 0), s.recordsEnd(name))},
		[]clientv3.Op{clientv3.OpDelete(s.tokKey(name, 0), clientv3.WithRange(s.countersEnd(name)))}, nil))
	return err
}
