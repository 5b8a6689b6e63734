//go:build unix

package redisstore

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestMalformedURLs(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"redis+unix://host/path":                           "want redis+unix:///path",
		"redis+unix:///":                                   "want redis+unix:///path",
		"redis+unix://":                                    "want redis+unix:///path",
		"redis+unix:///path?db=-1":                         "want redis+unix:///path",
		"redis+unix:///path?db=x":                          `"db"`,
		"redis+unix:///path?ca_file=x":                     "unknown parameter ca_file",
		"redis://host?db=1":                                "unknown parameter db",
		"redis://host?cert_file=x&key_file=x":              "unknown parameter cert_file, key_file",
		"rediss://host?cert_file=x":                        "belong together",
		"rediss://host?key_file=x":                         "belong together",
		"rediss://:SecretWord@host?cert_file=x&key_file=x": "cert_file and key_file",
		"redis+cluster://host?tls=true&key_file=x":         "belong together",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = openURL(t.Context(), u)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s: %v, want an error that says %q", text, err, says)
		}
	}
}
