package redisstore

import (
	"context"
	"strings"
)

func (s *engine) serverVersion(ctx context.Context) (string, error) {
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

// serverInfo returns the fields of INFO.
func (s *engine) serverInfo(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	text, err := s.client.Info(ctx).Result()
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values, err
}
