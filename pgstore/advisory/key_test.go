//go:build unix

package advisory

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// What is in the documentation, so that other languages can check theirs.
func TestKeyVectors(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		scheme KeyScheme
		name   string
		want   string
	}{
		{SHA256Keys(""), "invoices/42", "-2819567864767847804"},
		{SHA256Keys("billing"), "invoices/42", "-930730480403387710"},
		{SHA256Keys(""), "größe", "-1839545750346627934"},
		{RawKeys, "-9223372036854775808", "-9223372036854775808"},
		{RawKeys, "-1,2147483647", "-1,2147483647"},
	} {
		key, err := v.scheme(v.name)
		if err != nil || key.String() != v.want {
			t.Errorf("the key of %q is %v, %v, want %s", v.name, key, err, v.want)
		}
	}
}

// The server makes the same key by the formula of the documentation.
func TestKeysAsTheServerMakesThem(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"))
	const formula = "SELECT ('x' || encode(substr(sha256(convert_to('ns' || chr(31) || $1, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint"
	for _, name := range []string{"", "invoices/42", "größe"} {
		var want int64
		if err := pool.QueryRow(t.Context(), formula, pgx.QueryExecModeExec, name).Scan(&want); err != nil {
			t.Fatal(err)
		}
		if key, err := SHA256Keys("ns")(name); err != nil || key != Key64(want) {
			t.Errorf("the key of %q is %d at the server, %v, %v here", name, want, key, err)
		}
	}
}

func TestRawKeysRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "name", "+1", "01", " 1", "1 ", "-0", "9223372036854775808", "1,", ",1", "1,2147483648", "1,2,3", "1, 2", "0x1"} {
		if key, err := RawKeys(name); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("RawKeys(%q) gives %v, %v, want ErrInvalid", name, key, err)
		}
	}
	if Key64(1<<32|2) == Key2x32(1, 2) {
		t.Error("a bigint and a pair are one key")
	}
}
