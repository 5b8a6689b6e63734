package advisory

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// checkSequence refuses a sequence that somebody else could set back, or that does not rise.
//
//go:embed sequence.sql
var checkSequence string

// sequenceLockKey is the key of the lock that a session holds, within one statement, while it sets
// a sequence.
const sequenceLockKey = -7386017462359302110

// minSequenceStep is the least step by which a sequence is set. Between the reading and the setting
// of the sequence, other sessions may draw. They would have to draw this often in that moment for a
// token to be granted twice.
const minSequenceStep = 1_000_001

// raiseTokenStatement draws a token that is not below $1, or NULL if that is too far above the
// server's clock (see driver.MaxLead).
var raiseTokenStatement = `WITH turn AS MATERIALIZED (SELECT pg_catalog.pg_advisory_xact_lock('%[2]d'::bigint)),
	drawn AS MATERIALIZED (SELECT pg_catalog.nextval(%[1]s::regclass) AS last FROM turn)
	SELECT CASE WHEN $1::bigint <= last THEN last
		WHEN $1::bigint <= ` + pgclient.Microseconds("pg_catalog.clock_timestamp()") + ` + 86400000000::bigint
		THEN pg_catalog.setval(%[1]s::regclass, greatest($1::bigint, last + %[3]d::bigint))
		END FROM drawn`

// advanceSequence brings the sequence up to the server's clock in microseconds. Every session does
// so before it grants anything. Then tokens rise over the loss of the sequence, and over a failover
// to a server that lacks its latest values and takes more than a second, unless the clock is set
// back at the same time.
func (s *engine) advanceSequence(ctx context.Context, conn *pgx.Conn, clock int64) error {
	param := binary.BigEndian.AppendUint64(nil, uint64(clock))
	return conn.PgConn().ExecPrepared(ctx, "holdfast_raise_token", [][]byte{param}, binaryFormat, binaryFormat).Read().Err
}

// raiseToken draws a token for a shared lease, or another one after the first was below the floor.
func (s *engine) raiseToken(l *lease, ttl time.Duration, floor int64) {
	param := binary.BigEndian.AppendUint64(nil, uint64(floor))
	done := func(value []byte, err error) {
		s.mu.Lock()
		switch {
		case l.state == leaseGone: // with its session
		case err == nil && value == nil:
			l.err = fmt.Errorf("%w: the floor of the token is more than %v above the server's clock",
				driver.ErrInvalid, driver.MaxLead)
			s.unlockLease(l)
			return
		case err != nil || len(value) != 8:
			l.err = cmp.Or(err, errUnknownReply)
			s.unlockLease(l)
			return
		default:
			l.token = int64(binary.BigEndian.Uint64(value))
			s.markHeld(l, ttl)
		}
		s.mu.Unlock()
	}
	l.session.sendStatement(statement{
		name: "holdfast_raise_token", params: [][]byte{param}, ownTransaction: true, done: done,
	})
}

func (s *engine) Migrate(ctx context.Context) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	if s.options.TokenSequence == "" {
		return nil
	}
	sequence := sequenceName(s.options.TokenSequence)
	check := strings.NewReplacer("@sequence@", pgclient.QuoteLiteral(sequence),
		"@trusted@", pgclient.TrustedRoles).Replace(checkSequence)
	create := fmt.Sprintf("SELECT pg_catalog.pg_advisory_xact_lock('%d'::bigint); "+
		"CREATE SEQUENCE IF NOT EXISTS %s AS bigint MAXVALUE %d; %s",
		sequenceLockKey, sequence, int64(driver.MaxToken), check)
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.wrapErr(err)
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, create).ReadAll() // one transaction
	return s.wrapErr(err)
}
