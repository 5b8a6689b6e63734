package pgstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// turnKey is the key of the lock that is held, within one statement, by whoever
// sets a sequence.
const turnKey = -7386017462359302110

// leap is the least step by which a sequence is set. While one session looks at
// the sequence and then sets it, others may draw; they would have to draw this
// often in that moment for a token to be granted twice.
const leap = 1_000_001

// liftStatement draws a token that is not below $1.
const liftStatement = `WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(%[2]d)),
	drawn AS MATERIALIZED (SELECT nextval(%[1]s::regclass) AS last FROM turn)
	SELECT CASE WHEN $1::bigint > last THEN setval(%[1]s::regclass, greatest($1::bigint, last + %[3]d)) ELSE last END FROM drawn`

// advance brings the sequence up to the server's clock in microseconds. Every
// session does so before it grants anything: then tokens rise over the loss of
// the sequence, and over a failover to a server that lacks its latest values and
// takes more than a second, unless the clock is set back at the same time.
func (s *AdvisoryStore) advance(ctx context.Context, conn *pgx.Conn, clock int64) error {
	param := binary.BigEndian.AppendUint64(nil, uint64(clock))
	return conn.PgConn().ExecPrepared(ctx, "holdfast_lift", [][]byte{param}, binaryFormat, binaryFormat).Read().Err
}

// lift draws another token for a claim whose first one was below the floor.
func (s *AdvisoryStore) lift(c *claim, ttl time.Duration, floor int64) {
	param := binary.BigEndian.AppendUint64(nil, uint64(floor))
	done := func(value []byte, err error) {
		s.mu.Lock()
		switch {
		case c.state == gone: // with its session
		case err != nil || len(value) != 8:
			c.err = cmp.Or(err, errNoAnswer)
			s.giveBack(c)
			return
		default:
			c.token = int64(binary.BigEndian.Uint64(value))
			s.granted(c, ttl)
		}
		s.mu.Unlock()
	}
	c.on.send(statement{name: "holdfast_lift", params: [][]byte{param}, done: done})
}

// Migrate creates the sequence of AdvisoryOptions.TokenSequence, if it is not
// there. Every user who locks needs USAGE, SELECT and UPDATE on it. It may be
// called by many programs at once. Without a TokenSequence it does nothing.
func (s *AdvisoryStore) Migrate(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if s.options.TokenSequence == "" {
		return nil
	}
	create := fmt.Sprintf("SELECT pg_advisory_xact_lock(%d); CREATE SEQUENCE IF NOT EXISTS %s AS bigint MAXVALUE %d",
		turnKey, sequenceName(s.options.TokenSequence), int64(driver.MaxToken))
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.fault(err)
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, create).ReadAll() // one transaction
	return s.fault(err)
}
