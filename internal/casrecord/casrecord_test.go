package casrecord

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// memory is Objects in the memory of the process.
type memory struct {
	mu      sync.Mutex
	objects map[string]object
	writes  int
}

type object struct{ value, version string }

func (m *memory) Get(ctx context.Context, name string) ([]byte, string, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[name]
	if !ok {
		return nil, "", nil
	}
	return []byte(o.value), o.version, nil
}

func (m *memory) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", driver.NotApplied(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[name].version != version {
		return "", ErrChanged
	}
	m.writes++
	next := fmt.Sprint("v", m.writes)
	m.objects[name] = object{string(value), next}
	return next, nil
}

func (m *memory) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	m.mu.Lock()
	names := slices.Sorted(maps.Keys(m.objects))
	m.mu.Unlock()
	return func(yield func(string, error) bool) {
		for _, name := range names {
			if strings.HasPrefix(name, prefix) && !yield(name, ctx.Err()) {
				return
			}
		}
	}
}

// faulty loses the next request or reply when it is told to.
type faulty struct {
	Objects
	mu    sync.Mutex
	fault drivertest.Fault
}

var errLost = errors.New("the connection was lost")

func (f *faulty) take(write bool) (fault drivertest.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if write || f.fault == drivertest.RequestLost {
		fault, f.fault = f.fault, 0
	}
	return fault
}

func (f *faulty) Get(ctx context.Context, name string) ([]byte, string, error) {
	if f.take(false) != 0 {
		return nil, "", errLost
	}
	return f.Objects.Get(ctx, name)
}

func (f *faulty) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	fault := f.take(true)
	if fault == drivertest.RequestLost {
		return "", errLost
	}
	next, err := f.Objects.Put(ctx, name, value, version)
	if fault == drivertest.ReplyLost {
		return "", errLost
	}
	return next, err
}

// A Release ends what an Acquire without a reply may still write, of a new name and of a known one.
func TestLateAcquire(t *testing.T) {
	m := &memory{objects: map[string]object{}}
	late := &lateObjects{Objects: m}
	s, ctx := New(late, fates), t.Context()
	for _, owner := range []string{"A", "B"} {
		late.late = true
		req := driver.Request{Name: "name", Owner: owner, Holder: "h", TTL: time.Hour}
		if res, err := s.Acquire(ctx, req); !errors.Is(err, errLost) || driver.IsNotApplied(err) {
			t.Fatalf("an Acquire without a reply: %+v, %v", res, err)
		}
		if found, err := s.Release(ctx, driver.ReleaseRequest{Name: "name", Owner: owner}); found || err != nil {
			t.Errorf("Release of what has not arrived: %v, %v", found, err)
		}
		if err := late.arrive(); !errors.Is(err, ErrChanged) {
			t.Errorf("the write arrives after the Release: %v, want ErrChanged", err)
		}
		if records, err := s.Lookup(ctx, "name"); len(records) > 0 || err != nil {
			t.Errorf("after the Release there is %v, %v", records, err)
		}
	}
}

// lateObjects delays the next Put when it is told to.
type lateObjects struct {
	Objects
	late   bool
	arrive func() error
}

func (o *lateObjects) Put(ctx context.Context, name string, value []byte, version string) (string, error) {
	if !o.late {
		return o.Objects.Put(ctx, name, value, version)
	}
	o.late = false
	o.arrive = func() error {
		_, err := o.Objects.Put(ctx, name, value, version)
		return err
	}
	return "", errLost
}

// changing is Objects that somebody else has always just changed.
type changing struct{ Objects }

func (changing) Put(context.Context, string, []byte, string) (string, error) { return "", ErrChanged }

// What others leave no time for is not applied, and can be done later: the store is there.
func TestContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(changing{&memory{objects: map[string]object{}}}, fates)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var later *driver.RetryError
		res, err := s.Acquire(ctx, driver.Request{Name: "name", Owner: "o", Holder: "h", TTL: time.Hour})
		if !errors.As(err, &later) || !errors.Is(err, context.DeadlineExceeded) || res.Granted {
			t.Errorf("Acquire of an object that always changes: %+v, %v; want a RetryError", res, err)
		}
	})
}

var fates = driver.Guarantees{Store: "objects", Restart: driver.FateKept, Failover: driver.FateKept}

// place is a place of stores each of which looks at a name when another one has written it, as those
// that wait for it do.
type place struct {
	objects *memory
	mu      sync.Mutex
	stores  []*watching
	opened  int
}

type watching struct {
	*Store
	faulty *faulty
	place  *place
}

func newPlace() *place {
	p := &place{objects: &memory{objects: map[string]object{}}}
	for range 8 {
		p.add()
	}
	return p
}

func (p *place) add() {
	f := &faulty{Objects: p.objects}
	p.stores = append(p.stores, &watching{New(f, fates), f, p})
}

func (p *place) open() *watching {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened == len(p.stores) {
		p.add()
	}
	p.opened++
	return p.stores[p.opened-1]
}

func (s *watching) look(names ...string) {
	s.place.mu.Lock()
	stores := slices.Clone(s.place.stores)
	s.place.mu.Unlock()
	for _, other := range stores {
		for _, name := range names {
			if other != s {
				other.Lookup(context.Background(), name)
			}
		}
	}
}

func (s *watching) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	defer s.look(req.Name)
	return s.Store.Acquire(ctx, req)
}

func (s *watching) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	for _, req := range reqs {
		defer s.look(req.Name)
	}
	return s.Store.Renew(ctx, reqs)
}

func (s *watching) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	defer s.look(req.Name)
	return s.Store.Release(ctx, req)
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Virtual: true, New: func(tb testing.TB) drivertest.Backing {
		p := newPlace()
		return drivertest.Backing{
			Open:  func(testing.TB) driver.Store { return p.open() },
			Crash: func(testing.TB, driver.Store) {},
			Fault: func(_ testing.TB, s driver.Store, f drivertest.Fault) {
				faulty := s.(*watching).faulty
				faulty.mu.Lock()
				defer faulty.mu.Unlock()
				faulty.fault = f
			},
			Restart: func(testing.TB) {},
			Occupy: func(_ testing.TB, name string, way int) bool {
				foreign := []string{
					`{`, `[]`, ``, `{"format":1}`,
					fmt.Sprintf(`{"format":2,"name":%q,"writes":1,"last":0,"entries":null}`, name),
					fmt.Sprintf(`{"format":1,"name":%q,"writes":1,"last":9,"entries":[{"owner":"o","token":9,"tokens":1,"limit":1,"lasts":-1}]}`, name),
				}
				if way >= len(foreign) {
					return false
				}
				p.objects.objects[name] = object{foreign[way], "foreign"}
				return true
			},
		}
	}})
}
