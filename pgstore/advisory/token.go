package advisory

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// sequenceLockKey is the key of the lock that a session holds, within one transaction, while it
// makes or sets a sequence.
const sequenceLockKey = -7386017462359302110

// raiseTokenStatement draws a token, and sets a sequence that is behind the server's clock to a
// second ahead of it: between the reading and the setting other sessions may draw, a million times
// for a token to be granted twice.
const raiseTokenStatement = `WITH turn AS MATERIALIZED (SELECT pg_catalog.pg_advisory_xact_lock('%[2]d'::bigint)),
	drawn AS MATERIALIZED (SELECT pg_catalog.nextval(%[1]s::regclass) AS last, (extract(epoch FROM pg_catalog.clock_timestamp())::double precision * 1000000::double precision)::bigint AS clock FROM turn)
	SELECT CASE WHEN last < clock THEN pg_catalog.setval(%[1]s::regclass, clock + 1000001::bigint) END FROM drawn`

// raiseToken sees to it that no token is below the clock of the server. Every session does so
// before it grants anything, and so does Migrate. Then tokens rise over the loss of the sequence,
// and over a failover to a server that lacks its latest values and takes more than a second, unless
// the clock is set back at the same time.
func (s *Store) raiseToken(ctx context.Context, conn *pgx.Conn) error {
	if s.options.TokenSequence == "" {
		return nil
	}
	_, err := conn.Exec(ctx, fmt.Sprintf(raiseTokenStatement, pgclient.QuoteLiteral(s.sequence()), sequenceLockKey))
	return err
}

// sequence returns the quoted name of the sequence of tokens.
func (s *Store) sequence() string {
	return pgx.Identifier(strings.Split(s.options.TokenSequence, ".")).Sanitize()
}

// Migrate creates the sequence of Options.TokenSequence if it does not exist, and refuses one that
// does not rise. Every user that locks needs USAGE, SELECT and UPDATE on it. Many programs may call
// Migrate at once. Without a TokenSequence it does nothing.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.checkUsable(ctx); err != nil || s.options.TokenSequence == "" {
		return err
	}
	// A program that hangs keeps the lock for two seconds.
	create := fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = 2000; SELECT pg_catalog.pg_advisory_xact_lock('%d'::bigint); CREATE SEQUENCE IF NOT EXISTS %s AS bigint MAXVALUE %d",
		sequenceLockKey, s.sequence(), int64(driver.MaxToken))
	return s.wrapErr(pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, create, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		var rises bool
		err := tx.QueryRow(ctx, "SELECT seqincrement > 0 AND NOT seqcycle AND seqcache = 1 FROM pg_catalog.pg_sequence WHERE seqrelid = $1::text::regclass",
			pgx.QueryExecModeExec, s.sequence()).Scan(&rises)
		if err == pgx.ErrNoRows || err == nil && !rises {
			return fmt.Errorf("%w: %s is not a sequence that rises, without a cache: name another", driver.ErrInvalid, s.sequence())
		}
		if err != nil {
			return err
		}
		return s.raiseToken(ctx, tx.Conn())
	}))
}
