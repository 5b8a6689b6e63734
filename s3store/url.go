package s3store

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/driver"
)

func init() { driver.Register("s3", openURL) }

// openURL makes a store with a client of its own. No request is sent.
func openURL(ctx context.Context, u *url.URL) (driver.Store, error) {
	query := driver.NewQuery(u)
	region, endpoint := query.String("region", ""), query.String("endpoint", "")
	pathStyle := query.Bool("path_style", endpoint != "")
	if err := query.Err(); err != nil {
		return nil, err
	}
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("%w: the URL has a user: credentials come from the environment, a profile or the machine", driver.ErrInvalid)
	case u.Opaque != "" || u.Fragment != "" || u.Host == "" || u.Port() != "":
		return nil, fmt.Errorf("%w: want s3://bucket/prefix", driver.ErrInvalid)
	}
	if e, err := url.Parse(endpoint); endpoint != "" && (err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" ||
		e.User != nil || e.RawQuery != "" || e.Fragment != "") {
		return nil, fmt.Errorf("%w: parameter \"endpoint\" is not as in https://host:port", driver.ErrInvalid)
	}
	base, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the configuration of AWS: %w", driver.ErrInvalid, err)
	}
	if region = cmp.Or(region, base.Region); region == "" {
		if endpoint == "" && base.BaseEndpoint == nil {
			return nil, fmt.Errorf("%w: no region: parameter \"region\", or the environment variable AWS_REGION", driver.ErrInvalid)
		}
		region = "us-east-1" // as servers that have no regions expect
	}
	transport := awshttp.NewBuildableClient().GetTransport()
	if own, ok := base.HTTPClient.(*awshttp.BuildableClient); ok {
		transport = own.GetTransport() // with the certificates of AWS_CA_BUNDLE
	}
	client := s3.NewFromConfig(base, func(o *s3.Options) {
		o.Region, o.UsePathStyle = region, pathStyle
		o.HTTPClient = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
	opts := &Options{}
	if path := strings.Trim(u.Path, "/"); path != "" {
		opts.Prefix = path + "/"
	}
	s, err := New(client, u.Host, opts)
	if err == nil {
		s.end = transport.CloseIdleConnections
	}
	return s, err
}
