//go:build unix

package advisory

import (
	"errors"
	"strings"
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

// Every scheme makes the key that the server makes by the formula.
func TestKeysAsTheServerMakesThem(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.Postgres().URL("postgres"))
	for _, scheme := range []struct {
		keys    KeyScheme
		formula string
	}{
		{SHA256Keys("ns"), "('x' || encode(substr(sha256(convert_to('ns' || chr(31) || $1, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint"},
		{HashtextKeys, "hashtext($1)::bigint"},
		{HashtextextendedKeys, "hashtextextended($1, 0)"},
		{GoodJobKeys, "('x' || substr(md5($1::text), 1, 16))::bit(64)::bigint"},
	} {
		for size := range 40 {
			name := strings.Repeat("aé1/", 10)[:size]
			name = strings.ToValidUTF8(name, "?")
			var want int64
			if err := pool.QueryRow(t.Context(), "SELECT "+scheme.formula, pgx.QueryExecModeExec, name).Scan(&want); err != nil {
				t.Fatal(err)
			}
			if key, err := scheme.keys(name); err != nil || key != Key64(want) {
				t.Errorf("%s of %q is %d at the server, %v, %v here", scheme.formula, name, want, key, err)
			}
		}
	}
}

// What the programs compute that have their formula in another language.
func TestKeysOfOthers(t *testing.T) {
	t.Parallel()
	gem, err := WithAdvisoryLockKeys("invoices/42")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		key  Key
		want string
	}{
		{gem, "2109212157,0"},
		{RailsMigrationKey("myapp_test"), "1235955690063948105"},
		{GolangMigrateKey("myapp_test", "public", "schema_migrations"), "400396322"},
	} {
		if v.key.String() != v.want {
			t.Errorf("the key is %v, want %s", v.key, v.want)
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
