package redisstore

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Identifier = (*Store)(nil)

// Identity implements [driver.Identifier]. It returns the run ID of the server. It returns "" for a
// cluster, and for a server that does not let the user run INFO.
func (s *Store) Identity(ctx context.Context) (string, error) {
	if err := s.checkUsable(ctx); err != nil || s.cluster {
		return "", err
	}
	info, err := withDeadline(s, ctx, func(ctx context.Context) (string, error) {
		return s.client.Info(ctx, "server").Result()
	})
	if err != nil {
		var reply redis.Error
		if errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "NOPERM ") {
			return "", nil // It would come again every time.
		}
		return "", s.wrapErr(err)
	}
	_, id, _ := strings.Cut(info, "run_id:")
	id, _, _ = strings.Cut(id, "\r\n")
	return id, nil
}
