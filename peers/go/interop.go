package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// A lock that was taken. What it returns is why it was refused, or nothing.
type shared interface {
	extend(ttl time.Duration) error
	release() error
}

// Both return nil without an error if somebody else holds the lock.
type sharing interface {
	take(key string, ttl time.Duration) (shared, error)
	wait(key string, ttl, patience time.Duration) (shared, error)
}

type sharedRedsync struct{ mutex *redsync.Mutex }

func (s sharedRedsync) extend(time.Duration) error {
	ok, err := s.mutex.Extend()
	return unlessDone(ok, err)
}

func (s sharedRedsync) release() error {
	ok, err := s.mutex.Unlock()
	return unlessDone(ok, err)
}

func unlessDone(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("false")
	}
	return err
}

type redsyncLocks struct{ locks *redsync.Redsync }

func (r redsyncLocks) take(key string, ttl time.Duration) (shared, error) {
	return lockedRedsync(r.locks.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1)), context.Background())
}

func (r redsyncLocks) wait(key string, ttl, patience time.Duration) (shared, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return lockedRedsync(r.locks.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt)), ctx)
}

func lockedRedsync(mutex *redsync.Mutex, ctx context.Context) (shared, error) {
	err := mutex.LockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return sharedRedsync{mutex}, nil
}

type sharedRedislock struct{ lock *redislock.Lock }

func (s sharedRedislock) extend(ttl time.Duration) error {
	return s.lock.Refresh(context.Background(), ttl, nil)
}

func (s sharedRedislock) release() error { return s.lock.Release(context.Background()) }

type redislockLocks struct{ locks *redislock.Client }

func (r redislockLocks) take(key string, ttl time.Duration) (shared, error) {
	return r.obtain(context.Background(), key, ttl, nil)
}

func (r redislockLocks) wait(key string, ttl, patience time.Duration) (shared, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
}

func (r redislockLocks) obtain(ctx context.Context, key string, ttl time.Duration, options *redislock.Options) (shared, error) {
	lock, err := r.locks.Obtain(ctx, key, ttl, options)
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return sharedRedislock{lock}, nil
}

type interop struct {
	lib   string
	locks sharing
	held  map[string]shared
}

// Answers one command per line; see the README for all of them.
func serveInterop(o options) error {
	clients, err := connect(o)
	if err != nil {
		return err
	}
	var locks sharing = redislockLocks{redislock.New(clients[0])}
	if o.lib == "redsync" {
		locks = redsyncLocks{redsync.New(goredis.NewPool(clients[0]))}
	}
	i := interop{o.lib, locks, map[string]shared{}}
	fmt.Println("ready")
	for line := range orders() {
		fmt.Println(i.answer(strings.Fields(line)))
	}
	return nil
}

func (i interop) answer(words []string) string {
	number := func(position int) int {
		n, _ := strconv.Atoi(words[position])
		return n
	}
	ms := func(position int) time.Duration { return time.Duration(number(position)) * time.Millisecond }
	key := words[1]
	switch words[0] {
	case "take":
		lock, err := i.locks.take(key, ms(2))
		return i.granted(key, lock, err)
	case "wait":
		lock, err := i.locks.wait(key, ms(2), ms(3))
		return i.granted(key, lock, err)
	case "extend":
		return done(i.held[key].extend(ms(2)))
	case "release":
		return done(i.held[key].release())
	case "count":
		return i.count(key, ms(2), number(3), words[4])
	}
	return "error unknown command"
}

func (i interop) granted(key string, lock shared, err error) string {
	switch {
	case err != nil:
		return "error " + err.Error()
	case lock == nil:
		return "busy"
	}
	i.held[key] = lock
	return "granted"
}

func done(err error) string {
	if err != nil {
		return "refused " + err.Error()
	}
	return "done"
}

// Adds one to the number in a file, so many times, each time under the lock.
func (i interop) count(key string, ttl time.Duration, times int, file string) string {
	changes, longest := 0, time.Duration(0)
	for counted := range times {
		begin := time.Now()
		asked := begin
		lock, err := i.locks.take(key, ttl)
		for lock == nil && err == nil {
			time.Sleep(2*time.Millisecond + rand.N(10*time.Millisecond))
			asked = time.Now()
			lock, err = i.locks.take(key, ttl)
		}
		if err != nil {
			return "error " + err.Error()
		}
		longest = max(longest, time.Since(begin))
		text, err := os.ReadFile(file)
		if err != nil {
			return "error " + err.Error()
		}
		number, last, _ := strings.Cut(string(text), " ")
		was, err := strconv.Atoi(number)
		if err != nil {
			return "error " + err.Error()
		}
		time.Sleep(time.Millisecond)
		if time.Since(asked) > ttl*8/10 {
			return fmt.Sprintf("stopped %d its lease had nearly run out before it wrote", counted)
		}
		if err := os.WriteFile(file, fmt.Appendf(nil, "%d %s", was+1, i.lib), 0o600); err != nil {
			return "error " + err.Error()
		}
		if last != i.lib {
			changes++
		}
		if err := lock.release(); err != nil {
			return fmt.Sprintf("stopped %d its release was refused: %v", counted+1, err)
		}
		time.Sleep(rand.N(4 * time.Millisecond))
	}
	return fmt.Sprintf("counted %d changes=%d longest_ms=%d", times, changes, longest.Milliseconds())
}
