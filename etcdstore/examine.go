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

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Examiner = (*Store)(nil)

// The checks of a cluster.
const (
	checkMembers = "etcd.members"
	checkMember  = "etcd.member"
	checkVersion = "etcd.version"
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
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	var list *clientv3.MemberListResponse
	err := s.onVoter(func() (err error) {
		list, err = s.client.MemberList(ctx)
		return err
	})
	if err != nil {
		errs = append(errs, s.storeError(err))
		return nil, errors.Join(slices.CompactFunc(errs, func(a, b error) bool { return a != nil && b != nil && a.Error() == b.Error() })...)
	}
	all := []driver.Finding{examineSize(list)}
	space := driver.Finding{Check: checkSpace, Severity: driver.SeverityOK, Found: "no member has an alarm"}
	for i, addr := range addrs {
		if u, err := url.Parse(addr); err == nil && u.Host != "" {
			addr = u.Host
		}
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
			}
		}
	}
	rights, err := s.examineRights(ctx)
	if err != nil {
		return append(all, space), err
	}
	return append(all, space, rights, examineTTL(o.TTL)), nil
}

// onVoter makes a request again that a learner has refused: the next one goes to another member.
func (s *Store) onVoter(request func() error) (err error) {
	for range s.client.Endpoints() {
		if err = request(); rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner) {
			break
		}
	}
	return err
}

func examineSize(list *clientv3.MemberListResponse) driver.Finding {
	n := 0
	for _, m := range list.Members {
		if !m.IsLearner {
			n++
		}
	}
	f := driver.Finding{Check: checkMembers, Severity: driver.SeverityOK, Found: fmt.Sprintf("%d members, of which %d may fail", n, (n-1)/2)}
	if n == 1 {
		f.Found = "it is a single member, which may not fail"
	}
	if n%2 == 0 || n == 1 {
		f.Severity, f.Want, f.Remedy = driver.SeverityNote, "an odd number of members, at least 3", "etcdctl member add"
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
	never := clientv3.Compare(clientv3.CreateRevision(s.recKey(name, 0)), "<", 0)
	txn := clientv3.OpTxn([]clientv3.Cmp{never}, []clientv3.Op{
		clientv3.OpPut(s.ownKey(name, name), ""), clientv3.OpPut(s.recKey(name, 0), ""), clientv3.OpPut(s.tokKey(name, 0), ""),
	}, []clientv3.Op{
		clientv3.OpGet(s.prefix+"rec/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(s.prefix+"own/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(s.prefix+"tok/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
	})
	err := s.onVoter(func() error {
		_, err := s.client.Do(ctx, txn)
		return err
	})
	f := driver.Finding{Check: checkRights, Severity: driver.SeverityOK, Found: "the user may read and write below " + s.prefix}
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		f.Severity, f.Found, f.Want = driver.SeverityFailure, "the user may not read and write below "+s.prefix, "the right to do both"
		f.Remedy = fmt.Sprintf("etcdctl role grant-permission --prefix=true ROLE readwrite %q", s.prefix)
	case errors.Is(err, rpctypes.ErrNoSpace):
		f.Severity, f.Found, f.Want = driver.SeverityUnknown, "cannot tell: "+err.Error(), "a cluster with space"
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
