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

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	b := StartPgBouncer(t, StartPostgres(t))
	if err := greetPostgres(b.Addr); err != nil {
		t.Error(err)
	}
}
