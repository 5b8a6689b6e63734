//go:build unix

package advisory

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// The keys are those of the documentation, with which other languages can check theirs, and those
// that the server makes by the formula.
func TestKeyVectors(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"))
	const formula = "SELECT ('x' || encode(substr(sha256(convert_to($1 || chr(31) || $2, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint"
	for _, v := range []struct {
		namespace, name string
		want            int64
	}{
		{"", "invoices/42", -2819567864767847804}, {"billing", "invoices/42", -930730480403387710}, {"", "größe", -1839545750346627934},
	} {
		var made int64
		if err := pool.QueryRow(t.Context(), formula, pgx.QueryExecModeExec, v.namespace, v.name).Scan(&made); err != nil {
			t.Fatal(err)
		}
		if key, err := (Keys{Namespace: v.namespace}).of(v.name); err != nil || key != fmt.Sprint(v.want) || made != v.want {
			t.Errorf("the key of %q is %q, %v here and %d at the server, want %d", v.name, key, err, made, v.want)
		}
	}
}

func TestRawKeysRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "name", "+1", "01", " 1", "1 ", "-0", "9223372036854775808", "1,", ",1", "1,2147483648", "1,2,3", "1, 2", "0x1"} {
		if key, err := (Keys{Raw: true}).of(name); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("the raw key of %q is %q, %v, want ErrInvalid", name, key, err)
		}
	}
}
