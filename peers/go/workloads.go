package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const warmUpCycles = 200

// What the tasks of one round have seen.
type tally struct {
	sync.Mutex
	us          []float64
	hold        time.Duration
	first, last time.Time
	errors      int
}

// The first error of a round is shown, all are counted.
func (t *tally) fail(err error) {
	t.Lock()
	defer t.Unlock()
	if t.errors == 0 {
		fmt.Fprintln(os.Stderr, err)
	}
	t.errors++
}

func (t *tally) percentile(p float64) float64 {
	if len(t.us) == 0 {
		return 0
	}
	return t.us[int(p*float64(len(t.us)-1))]
}

// Runs `task` that often at the same time; returns how long all of them took.
func (t *tally) concurrently(tasks int, task func(number int)) time.Duration {
	begin := time.Now()
	var group sync.WaitGroup
	for number := range tasks {
		group.Go(func() { task(number) })
	}
	group.Wait()
	took := time.Since(begin)
	slices.Sort(t.us)
	return took
}

// Each task locks and releases a name of its own for as long as `more` says.
func cycles(lock library, o options, more func(done int) bool) (*tally, time.Duration) {
	seen := &tally{}
	took := seen.concurrently(o.tasks, func(number int) {
		name := fmt.Sprintf("%s%d", o.prefix, number)
		var us []float64
		for done := 0; more(done); done++ {
			begin := time.Now()
			release, err := lock(name)
			if err == nil {
				err = release()
			}
			if err != nil {
				seen.fail(err)
				continue
			}
			us = append(us, micros(time.Since(begin)))
		}
		seen.Lock()
		defer seen.Unlock()
		seen.us = append(seen.us, us...)
	})
	return seen, took
}

func warmUp(lock library, o options) error {
	each := (warmUpCycles + o.tasks - 1) / o.tasks
	seen, _ := cycles(lock, o, func(done int) bool { return done < each })
	if seen.errors > 0 {
		return fmt.Errorf("%d cycles failed while warming up", seen.errors)
	}
	return nil
}

func cycle(lock library, o options) any {
	end := time.Now().Add(o.round)
	seen, took := cycles(lock, o, func(int) bool { return time.Now().Before(end) })
	return map[string]any{
		"cycles": len(seen.us), "seconds": took.Seconds(),
		"p50_us": seen.percentile(0.5), "p99_us": seen.percentile(0.99), "errors": seen.errors,
	}
}

// All tasks want the same name, until the process has had its share of grants.
func contend(lock library, o options) any {
	var begun atomic.Int64
	seen := &tally{}
	took := seen.concurrently(o.tasks, func(int) {
		for begun.Add(1) <= int64(o.grants) {
			begin := time.Now()
			release, err := lock(o.prefix + o.name)
			granted := time.Now()
			if err != nil {
				seen.fail(err)
				continue
			}
			time.Sleep(o.hold)
			held := time.Since(granted)
			if err := release(); err != nil {
				seen.fail(err)
			}
			seen.granted(granted, granted.Sub(begin), held)
		}
	})
	return map[string]any{
		"grants": len(seen.us), "seconds": took.Seconds(), "hold_seconds": seen.hold.Seconds(),
		"waits_us": []float64{seen.percentile(0.5), seen.percentile(0.99), seen.percentile(1)},
		"first_s":  unix(seen.first), "last_s": unix(seen.last), "errors": seen.errors,
	}
}

func (t *tally) granted(at time.Time, waited, held time.Duration) {
	t.Lock()
	defer t.Unlock()
	t.us = append(t.us, micros(waited))
	t.hold += held
	if t.first.IsZero() || at.Before(t.first) {
		t.first = at
	}
	if at.After(t.last) {
		t.last = at
	}
}

func takeAll(lock library, o options) ([]func() error, error) {
	releases := make([]func() error, o.locks)
	return releases, eachLock(o, func(number int) (err error) {
		releases[number], err = lock(fmt.Sprintf("%s%d", o.prefix, number))
		return err
	})
}

// For all locks, a few dozen at a time.
func eachLock(o options, act func(number int) error) error {
	var next atomic.Int64
	seen := &tally{}
	seen.concurrently(o.tasks, func(int) {
		for number := next.Add(1) - 1; number < int64(o.locks); number = next.Add(1) - 1 {
			if err := act(int(number)); err != nil {
				seen.fail(err)
			}
		}
	})
	if seen.errors > 0 {
		return fmt.Errorf("%d of %d locks failed", seen.errors, o.locks)
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
