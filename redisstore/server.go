package redisstore

import "context"

// ServerVersion returns the name and version of the server, as in "Redis 7.0.15"; of a cluster,
// those of one node. It needs the command INFO.
func (s *Store) ServerVersion(ctx context.Context) (string, error) {
	if err := s.checkUsable(ctx); err != nil {
		return "", err
	}
	info, err := s.serverInfo(ctx)
	if err != nil {
		return "", s.wrapErr(err)
	}
	if version := info["valkey_version"]; version != "" {
		return "Valkey " + version, nil
	}
	return "Redis " + info["redis_version"], nil
}

func (s *Store) serverInfo(ctx context.Context) (map[string]string, error) {
	return withDeadline(s, ctx, func(ctx context.Context) (map[string]string, error) {
		return readInfo(ctx, s.client)
	})
}
