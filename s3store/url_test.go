//go:build unix

package s3store

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

func openText(tb testing.TB, text string) (*Store, error) {
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := openURL(tb.Context(), u)
	if err != nil {
		return nil, err
	}
	return s.(*Store), nil
}

// The bucket, the prefix and the server are those of the URL, and nothing secret is in an error.
func TestURL(t *testing.T) {
	for _, variable := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(variable, "")
	}
	for _, variable := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(variable, t.TempDir()+"/none")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", servers.S3User)
	t.Setenv("AWS_SECRET_ACCESS_KEY", servers.S3Password)
	for text, want := range map[string][4]string{
		"s3://b?region=eu-north-1":                           {"holdfast/", "eu-north-1", "", "virtual"},
		"s3://b/some/prefix/?region=r&path_style=true":       {"some/prefix/", "r", "", "path"},
		"s3://b?endpoint=http://127.0.0.1:7070":              {"holdfast/", "us-east-1", "http://127.0.0.1:7070", "path"},
		"s3://b?endpoint=https://h&path_style=0&region=auto": {"holdfast/", "auto", "https://h", "virtual"},
	} {
		s, err := openText(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		o := s.client.Options()
		got := [4]string{s.prefix, o.Region, "", "virtual"}
		if o.BaseEndpoint != nil {
			got[2] = *o.BaseEndpoint
		}
		if o.UsePathStyle {
			got[3] = "path"
		}
		if got != want || s.bucket != "b" {
			t.Errorf("%s: %q, bucket %q", text, got, s.bucket)
		}
		must(t, s.Close())
	}
	for _, text := range []string{
		"s3://b", "s3:b?region=r", "s3:?region=r", "s3:///prefix?region=r", "s3://:80?region=r", "s3://b:80?region=r",
		"s3://key:secret@b?region=r", "s3://b?region=r#secret", "s3://b?region=r&key=secret", "s3://b?region=r&region=s",
		"s3://b?region=r&path_style=secret", "s3://b?endpoint=secret", "s3://b?endpoint=ftp://secret", "s3://b?endpoint=http://u:secret@h",
		"s3://b?endpoint=http://h?x=secret", "s3://b?endpoint=http://", "s3://b?endpoint=http://%zz:secret", "s3://b/a%0ab?region=r",
		"s3://b/" + strings.Repeat("p", 240) + "?region=r", "s3://b/a//b?region=r", "s3://b/a/../b?region=r", "s3://b/.?region=r",
	} {
		if _, err := openText(t, text); !errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
