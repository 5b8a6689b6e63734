package etcdstore

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/transport"
)

func init() {
	driver.Register("etcd", openURL)
	driver.Register("etcds", openURL)
}

// openURL makes a store with a client of its own, which dials only to authenticate a user.
func openURL(_ context.Context, u *url.URL) (driver.Store, error) {
	query, scheme := driver.NewQuery(u), "http://"
	if u.Opaque != "" || u.Fragment != "" || u.Host == "" {
		return nil, fmt.Errorf("%w: want %s://host:port,host:port", driver.ErrInvalid, u.Scheme)
	}
	password, _ := u.User.Password()
	config := clientv3.Config{
		Logger:            zap.NewNop(), // The errors have all that matters of it.
		DialTimeout:       requestBound,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: requestBound, // A member that is cut off is left.
		Username: cmp.Or(u.User.Username(), os.Getenv("HOLDFAST_ETCD_USER")),
		Password: cmp.Or(password, os.Getenv("HOLDFAST_ETCD_PASSWORD")),
	}
	if (config.Username == "") != (config.Password == "") {
		return nil, fmt.Errorf("%w: a user and a password of etcd belong together", driver.ErrInvalid)
	}
	if u.Scheme == "etcds" {
		scheme = "https://"
		var err error
		if config.TLS, err = transport.TLS(query); err != nil {
			return nil, err
		}
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2379")
		}
		config.Endpoints = append(config.Endpoints, scheme+host)
	}
	prefix := strings.TrimPrefix(strings.Trim(u.Path, "/")+"/", "/") // "" for none
	if err := query.Err(); err != nil {
		return nil, err
	}
	config.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(keepReason)}
	if config.TLS != nil && config.TLS.ServerName != "" { // else gRPC goes by the host of each endpoint
		config.DialOptions = append(config.DialOptions, grpc.WithAuthority(config.TLS.ServerName))
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", storeError(err))
	}
	s := New(client, &Options{Prefix: prefix})
	s.ownsClient = true
	return s, nil
}

// keepReason makes a request of a client that was opened from a URL. While there is no connection
// its error has the reason. That of the client would be the error of the context alone.
func keepReason(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if _, ok := req.(*pb.AuthenticateRequest); ok && rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken) {
		// The server refuses to authenticate a client whose token has expired. For the client
		// this is a reason to authenticate again, until its stack is used up. After the error
		// that follows it has no token, and succeeds.
		return rpctypes.ErrGRPCAuthNotEnabled
	}
	if text := status.Convert(err).Message(); status.Code(err) == codes.DeadlineExceeded {
		_, reason, _ := strings.Cut(text, "latest balancer error: ")
		return fmt.Errorf("%w: %s", context.DeadlineExceeded, cmp.Or(reason, text))
	}
	return err
}
