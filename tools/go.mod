module github.com/holdfast-go/holdfast/tools

go 1.26.0

require (
	github.com/allisson/go-pglock/v3 v3.2.0
	github.com/bsm/redislock v0.10.0
	github.com/go-redsync/redsync/v4 v4.18.0
	github.com/holdfast-go/holdfast v0.1.0
	github.com/holdfast-go/holdfast/etcdstore v0.1.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	go.etcd.io/etcd/client/v3 v3.7.3
	go.uber.org/zap v1.28.0
	golang.org/x/sys v0.49.0
)
