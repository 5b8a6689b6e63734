// Package doctor examines a store for what endangers locks: the settings of its servers, how long
// requests take, whether a lock can be taken, excludes another owner and is released, whether a
// waiter is notified of that, and how far the clocks are apart. The command is "holdfast doctor".
//
//	findings, err := doctor.Examine(ctx, locks.Store(), nil)
//	for _, f := range findings {
//		if f.Severity >= doctor.Warning {
//			slog.Warn("locks", "finding", f)
//		}
//	}
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/pgstore"
	"github.com/holdfast-go/holdfast/pgstore/advisory"
	"github.com/holdfast-go/holdfast/quorumstore"
	"github.com/holdfast-go/holdfast/redisstore"
)

// A Finding is the result of one check.
type Finding struct {
	// Check identifies the check, as in "redis.eviction". It does not change between versions.
	Check string `json:"id"`

	// Server is where the check was made, if the store has several servers: an address, or
	// "node 2".
	Server string `json:"server,omitempty"`

	// Severity is how bad the finding is.
	Severity Severity `json:"status"`

	// Found is what was found, Want what should be, and Remedy what mends it. The last two are
	// empty if the Severity is OK.
	Found  string `json:"found"`
	Want   string `json:"want,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// String returns the finding in one line.
func (f Finding) String() string {
	text := f.Severity.String() + " " + f.Check
	if f.Server != "" {
		text += " (" + f.Server + ")"
	}
	text += ": " + f.Found
	if f.Want != "" {
		text += "; want " + f.Want
	}
	if f.Remedy != "" {
		text += "; try " + f.Remedy
	}
	return text
}

// A Severity is how bad a Finding is.
type Severity uint8

const (
	// OK means that all is as it should be.
	OK Severity = iota + 1

	// Note means that there is something to know and nothing to mend.
	Note

	// Unknown means that the check could not be made.
	Unknown

	// Warning means that locks work, and that a crash, a failover, a full server or another user
	// may cost some of them, or that they are slow.
	Warning

	// Failure means that locks do not work, or that two clients may hold one while nothing else
	// goes wrong.
	Failure
)

// String returns "ok", "note", "unknown", "warn" or "fail".
func (s Severity) String() string {
	return [...]string{OK: "ok", Note: "note", Unknown: "unknown", Warning: "warn", Failure: "fail"}[s]
}

// MarshalText returns the text of String, for JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Options configure [Examine]. The zero value, and nil, mean the defaults.
type Options struct {
	// TTL is the shortest TTL of the program's locks; 0 means holdfast.DefaultTTL.
	TTL time.Duration

	// Prefix is put in front of the names that are tried, as holdfast.Config.Prefix is.
	Prefix string

	// NoProbe takes no lock, so that nothing is written.
	NoProbe bool
}

// storeTime bounds the checks of the servers, all together.
const storeTime = 10 * time.Second

// Examine examines a store. It takes locks below holdfast-doctor/, with random names, and releases
// them. The findings are in a fixed order, those with the Severity OK included. Each request has
// 3 s, the checks of the servers have 10 s, and all of them end with ctx. The error matches
// holdfast.ErrUnavailable if the store cannot be reached; then the findings are those made before
// that.
func Examine(ctx context.Context, store driver.Store, o *Options) ([]Finding, error) {
	var options Options
	if o != nil {
		options = *o
	}
	options.TTL = cmp.Or(options.TTL, holdfast.DefaultTTL)
	if options.TTL < driver.MinTTL || options.TTL > driver.MaxTTL {
		return nil, fmt.Errorf("holdfast: examine: %w: TTL is not between %v and %v", holdfast.ErrInvalid, driver.MinTTL, driver.MaxTTL)
	}
	limited, cancel := context.WithTimeout(ctx, storeTime)
	findings, err := examineServers(limited, store, options)
	cancel()
	if err == nil {
		p := &probe{ctx: ctx, store: store, guarantees: store.Guarantees(), options: options}
		err = p.run()
		if err != nil && len(findings) > 0 { // The servers have answered.
			p.findings.check("probe", "", true, Failure, "look up a free lock: "+err.Error(), "a lock that is taken, refused to others, renewed and released", "")
			err = nil
		}
		findings = append(findings, p.findings...)
	}
	if err != nil && !errors.Is(err, holdfast.ErrUnsupported) && !errors.Is(err, holdfast.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", holdfast.ErrUnavailable, err)
	}
	if err != nil {
		return findings, fmt.Errorf("holdfast: examine: %w", err)
	}
	return findings, nil
}

// registered are the examinations of stores of other modules.
var registered []func(ctx context.Context, store driver.Store, o Options) (findings []Finding, known bool, err error)

// Register adds an examination of the servers of a store that this package does not know. It
// reports whether it knows the store. It is meant to be called from an init function.
func Register(examine func(ctx context.Context, store driver.Store, o Options) (findings []Finding, known bool, err error)) {
	registered = append(registered, examine)
}

// examineServers examines the servers of a store.
func examineServers(ctx context.Context, store driver.Store, o Options) ([]Finding, error) {
	switch store := store.(type) {
	case *redisstore.Store:
		return examineRedis(ctx, store, o)
	case *pgstore.Store:
		return examineTable(ctx, store)
	case *advisory.Store:
		return examineAdvisory(ctx, store)
	case *quorumstore.Store:
		return examineQuorum(ctx, store, o)
	}
	for _, examine := range registered {
		if findings, known, err := examine(ctx, store, o); known {
			return findings, err
		}
	}
	return nil, nil
}

// A list collects the findings of one server.
type list []Finding

// check adds a finding: OK with the text ok, unless bad is true.
func (l *list) check(id, ok string, bad bool, severity Severity, found, want, remedy string) {
	f := Finding{Check: id, Severity: OK, Found: ok}
	if bad {
		f = Finding{Check: id, Severity: severity, Found: found, Want: want, Remedy: remedy}
	}
	*l = append(*l, f)
}

// transport adds what is found of a connection. One that leaves this host and is not encrypted
// carries passwords, and the secrets of owners, which release their locks.
func (l *list) transport(id string, conn net.Conn, encrypted bool, remedy string) {
	remote, here := conn.RemoteAddr(), true
	if to, ok := remote.(*net.TCPAddr); ok {
		from, _ := conn.LocalAddr().(*net.TCPAddr)
		here = to.IP.IsLoopback() || from != nil && from.IP.Equal(to.IP)
	}
	l.check(id, "the connection is encrypted, or does not leave this host", !encrypted && !here, Warning,
		fmt.Sprintf("the connection to %v is not encrypted: what is on the path reads passwords, and can release the locks of others", remote), "TLS", remedy)
}

// examineQuorum examines all nodes at the same time, and whether a majority of them can be reached,
// and whether two of them are one server.
func examineQuorum(ctx context.Context, store *quorumstore.Store, o Options) ([]Finding, error) {
	nodes := store.Nodes()
	findings, errs := make([][]Finding, len(nodes)), make([]error, len(nodes))
	var group sync.WaitGroup
	for i, node := range nodes {
		group.Go(func() {
			findings[i], errs[i] = examineServers(ctx, node, o)
			if errs[i] == nil && len(findings[i]) == 0 {
				_, errs[i] = node.Lookup(ctx, "holdfast-doctor")
			}
		})
	}
	group.Wait()
	var all list
	n := len(nodes)
	all.check("quorum.size", fmt.Sprintf("%d nodes, of which %d may fail", n, (n-1)/2), n%2 == 0 || n == 1, Warning,
		fmt.Sprintf("%d nodes, of which %d may fail", n, (n-1)/2), "an odd number of nodes, three at least", "one --store more")
	var down []string
	for i, err := range errs {
		if err != nil {
			down = append(down, fmt.Sprintf("node %d (%s): %v", i+1, nodes[i].Guarantees().Store, err))
		}
	}
	severity, text := Warning, strings.Join(down, "; ")
	if len(down) > (n-1)/2 {
		severity = Failure
	}
	all.check("quorum.majority", "all nodes can be reached", len(down) > 0, severity, "not all nodes can be reached: "+text, "all nodes up", "start or connect these servers")
	if severity == Failure {
		return all, fmt.Errorf("no majority of the nodes can be reached: %s", text)
	}
	same := sameServers(ctx, nodes)
	all.check("quorum.servers", "no two nodes are known to be one server", same != "", Failure,
		same+": its votes count twice, and two may hold one lock", "servers that fail independently", "another server for one of the nodes")
	for i, found := range findings {
		for _, f := range found {
			f.Server = strings.TrimSuffix(fmt.Sprintf("node %d: %s", i+1, f.Server), ": ")
			all = append(all, f)
		}
	}
	return all, nil
}

// sameServers names two nodes that are one server, "" if none are known to be.
func sameServers(ctx context.Context, nodes []driver.Store) string {
	seen := map[string]int{}
	for i, node := range nodes {
		id := ""
		switch node := node.(type) {
		case *redisstore.Store:
			if info, err := readInfo(ctx, node.Client()); err == nil {
				id = info["run_id"]
			}
		case interface {
			WithConn(context.Context, func(*pgx.Conn) error) error
		}: // both stores in PostgreSQL
			_ = node.WithConn(ctx, func(conn conn) error {
				return conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_catalog.pg_control_system()").Scan(&id)
			})
		case *filestore.Store:
			id = node.Dir()
		}
		if first, ok := seen[id]; ok && id != "" {
			return fmt.Sprintf("node %d and node %d are one server", first+1, i+1)
		}
		seen[id] = i
	}
	return ""
}
