package advisory

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

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

// raiseToken draws a token that is not below floor. Every session raises the sequence to the server's
// clock in microseconds before it grants anything. Then tokens rise over the loss of the sequence,
// and over a failover to a server that lacks its latest values and takes more than a second, unless
// the clock is set back at the same time.
func (s *session) raiseToken(ctx context.Context, floor int64) (int64, error) {
	if s.store.options.TokenSequence == "" {
		return 0, nil
	}
	statement := fmt.Sprintf(raiseTokenStatement, pgclient.QuoteLiteral(s.store.sequence()), sequenceLockKey, minSequenceStep)
	var token *int64
	err := s.conn.QueryRow(ctx, statement, floor).Scan(&token)
	if err == nil && token == nil {
		err = fmt.Errorf("%w: the floor of the token is more than %v above the server's clock",
			driver.ErrInvalid, driver.MaxLead)
	}
	if err != nil {
		return 0, err
	}
	return *token, nil
}

// sequence returns the quoted name of the sequence of tokens.
func (s *Store) sequence() string {
	return pgx.Identifier(strings.Split(s.options.TokenSequence, ".")).Sanitize()
}

// Migrate creates the sequence of Options.TokenSequence if it does not exist. Every user
// that locks needs USAGE, SELECT and UPDATE on it. Many programs may call Migrate at once. Without
// a TokenSequence it does nothing. Migrate refuses a sequence that does not rise. It also refuses
// one with an owner that could set it back: its owner must be the user, the owner of the schema or
// of the database, or a superuser.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.checkUsable(ctx); err != nil {
		return err
	}
	if s.options.TokenSequence == "" {
		return nil
	}
	sequence := s.sequence()
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
