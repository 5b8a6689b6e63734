package servers

import (
	"net"
	"testing"
	"time"
)

func TestPostgresRestart(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	p.Restart()
	p.Stop()
	if conn, err := net.DialTimeout("tcp", p.Addr, time.Second); err == nil {
		_ = conn.Close()
		t.Error("a stopped server takes connections")
	}
	p.Start()
}

func TestPostgresStandby(t *testing.T) {
	t.Parallel()
	primary := StartPostgres(t)
	standby := StartPostgresStandby(t, primary, "standby")
	primary.Kill()
	standby.Promote()
}

// A pause is one of all processes of the server, and no hindrance to its end.
func TestPostgresPause(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	p.Pause()
	pids, err := childProcesses(p.PID())
	if err != nil || len(pids) == 0 {
		t.Fatalf("its processes are %v, %v", pids, err)
	}
	for _, pid := range append(pids, p.PID()) {
		waitUntil(t, "pause of all processes", func() bool {
			s := state(pid)
			return s == 'T' || s == 'Z' // one that has ended, which the server cannot notice now
		})
	}
	p.Resume()
	for _, pid := range pids {
		waitUntil(t, "end of the pause", func() bool { return state(pid) != 'T' })
	}
	p.Pause()
	p.Restart()
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	b := StartPgBouncer(t, StartPostgres(t))
	if err := handshakePostgres(b.Addr); err != nil {
		t.Error(err)
	}
}
