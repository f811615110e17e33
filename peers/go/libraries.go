package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A library takes a lock and returns how to release it.
type library func(name string) (release func() error, err error)

// Where each library is published: its module path.
var modules = map[string]string{
	"redsync":   "github.com/go-redsync/redsync/v4",
	"redislock": "github.com/bsm/redislock",
}

func connect(o options) ([]redis.UniversalClient, error) {
	// It would only tell of servers that the benchmark has stopped.
	logging.Disable()
	var clients []redis.UniversalClient
	for _, url := range o.urls {
		at, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		// A connection blocks while it waits for its reply, so each task needs its own. The default is 10 per core.
		at.PoolSize = max(o.tasks, 10)
		client := redis.NewClient(at)
		if err := client.Ping(context.Background()).Err(); err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

func open(o options) (library, error) {
	clients, err := connect(o)
	if err != nil {
		return nil, err
	}
	if o.lib == "redsync" {
		return openRedsync(clients, o), nil
	}
	return openRedislock(clients[0], o), nil
}

// Waits as by default: asks again after a random 50 to 250 ms. Only the limit of 32 tries is lifted for `contend`. Of several servers
// it does not wait for the slowest, as its documentation advises for a low latency.
func openRedsync(clients []redis.UniversalClient, o options) library {
	options := []redsync.Option{redsync.WithExpiry(o.ttl), redsync.WithFailFast(len(clients) > 1)}
	if o.workload == "contend" {
		options = append(options, redsync.WithTries(math.MaxInt))
	}
	pools := make([]redsyncredis.Pool, len(clients))
	for i, client := range clients {
		pools[i] = goredis.NewPool(client)
	}
	locks := redsync.New(pools...)
	return func(name string) (func() error, error) {
		mutex := locks.NewMutex(name, options...)
		return func() error {
			if ok, err := mutex.Unlock(); err != nil || !ok {
				return errors.Join(errors.New("not released"), err)
			}
			return nil
		}, mutex.Lock()
	}
}

// By default it does not wait at all; the README's strategy asks again every 100 ms.
func openRedislock(client redis.UniversalClient, o options) library {
	locks := redislock.New(client)
	return func(name string) (func() error, error) {
		ctx := context.Background()
		if o.workload != "contend" {
			lock, err := locks.Obtain(ctx, name, o.ttl, nil)
			return func() error { return lock.Release(ctx) }, err
		}
		// Without a deadline of its own, a wait ends after the ttl.
		waiting, cancel := context.WithTimeout(ctx, 24*time.Hour)
		defer cancel()
		every := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		lock, err := locks.Obtain(waiting, name, o.ttl, every)
		return func() error { return lock.Release(ctx) }, err
	}
}
