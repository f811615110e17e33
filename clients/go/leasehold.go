// Package leasehold uses the locks of a `leasehold serve`, with the standard library only.
//
//	leases, err := leasehold.Open(ctx, "http://127.0.0.1:7420", leasehold.Options{})
//	lock, err := leases.Lock(ctx, "deal:42", leasehold.Wish{Wait: 5 * time.Second})
//	defer lock.Release(ctx)
//	write(lock.Fence) // the resource refuses a lower fence than it has seen
//	<-lock.Lost()     // closed before anybody else can have the lock
//
// A validity counts from when this process sent its request, never from the answer. Go's clock may stop while the machine sleeps:
// give the fence to whatever you write to.
package leasehold

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Refused is what the service refused; Kind is its word for it: busy, lost, taken, forbidden, store_unreachable, ...
type Refused struct {
	Kind   string `json:"kind"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Fence  uint64 `json:"fence"`
}

func (refused *Refused) Error() string { return refused.Detail }

// Options of a session.
type Options struct {
	Token string
	TTL   time.Duration // 30 s unless set
	Label string
}

// Wish is how a lock is to be held.
type Wish struct {
	Mode        string // exclusive unless set; shared; permits, with Of and Permits
	Of, Permits int
	TTL, Wait   time.Duration
	Label       string
}

type key struct {
	Name  string `json:"name"`
	Fence uint64 `json:"fence"`
}

// Leasehold is a session: one heartbeat keeps all locks of this process alive.
type Leasehold struct {
	url, token, id, secret string
	ttl                    time.Duration
	stop                   context.CancelFunc
	mutex                  sync.Mutex
	held                   map[key]*Lock
}

// Lock is held until it is released or lost; Fence goes with every write.
type Lock struct {
	Name, Sequencer string
	Fence           uint64
	leases          *Leasehold
	token           string
	validUntil      time.Time
	margin          time.Duration
	lost            chan struct{}
}

// Open begins a session.
func Open(ctx context.Context, address string, options Options) (*Leasehold, error) {
	if options.TTL == 0 {
		options.TTL = 30 * time.Second
	}
	leases := &Leasehold{url: strings.TrimSuffix(address, "/"), token: options.Token, ttl: options.TTL, held: map[key]*Lock{}}
	var opened struct{ ID, Secret string }
	body := map[string]any{"ttl": span(options.TTL), "label": options.Label}
	if err := leases.request(ctx, "POST", "/v1/sessions", body, nil, &opened); err != nil {
		return nil, err
	}
	leases.id, leases.secret = opened.ID, opened.Secret
	alive, stop := context.WithCancel(context.Background())
	leases.stop = stop
	go leases.keepAlive(alive)
	return leases, nil
}

// Lock acquires a lock, or returns *Refused of the kind busy.
func (leases *Leasehold) Lock(ctx context.Context, name string, wish Wish) (*Lock, error) {
	body := map[string]any{"session": leases.id}
	for field, value := range map[string]string{"mode": wish.Mode, "label": wish.Label} {
		if value != "" {
			body[field] = value
		}
	}
	for field, value := range map[string]int{"of": wish.Of, "permits": wish.Permits} {
		if value != 0 {
			body[field] = value
		}
	}
	if wish.TTL != 0 {
		body["ttl"] = span(wish.TTL)
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	headers := leases.proof()
	headers["Idempotency-Key"] = hex.EncodeToString(id)
	headers["Prefer"] = fmt.Sprintf("wait=%g", wish.Wait.Seconds())
	var held struct {
		Name, Sequencer, Token string
		Fence                  uint64
		ValidFor               int64 `json:"valid_for_ms"`
		TTL                    int64 `json:"ttl_ms"`
	}
	sentAt := time.Now()
	if err := leases.request(ctx, "POST", "/v1/locks/"+url.PathEscape(name)+"/acquire", body, headers, &held); err != nil {
		return nil, err
	}
	lock := &Lock{Name: held.Name, Sequencer: held.Sequencer, Fence: held.Fence, leases: leases, token: held.Token}
	lock.validUntil, lock.lost = sentAt.Add(time.Duration(held.ValidFor)*time.Millisecond), make(chan struct{})
	lock.margin = time.Duration(held.TTL) * time.Millisecond / 20
	leases.mutex.Lock()
	defer leases.mutex.Unlock()
	leases.held[key{lock.Name, lock.Fence}] = lock
	return lock, nil
}

// Lost is closed when the lock can no longer be trusted.
func (lock *Lock) Lost() <-chan struct{} { return lock.lost }

// Release gives the lock back; *Refused of the kind lost or taken if it was not ours any more.
func (lock *Lock) Release(ctx context.Context) error {
	lock.leases.mutex.Lock()
	delete(lock.leases.held, key{lock.Name, lock.Fence})
	lock.leases.mutex.Unlock()
	path := "/v1/locks/" + url.PathEscape(lock.Name) + "/release"
	return lock.leases.request(ctx, "POST", path, map[string]any{"token": lock.token}, nil, nil)
}

// Close gives all locks back and ends the session.
func (leases *Leasehold) Close(ctx context.Context) error {
	leases.stop()
	return leases.request(ctx, "DELETE", "/v1/sessions/"+leases.id, nil, leases.proof(), nil)
}

func (leases *Leasehold) proof() map[string]string {
	return map[string]string{"Leasehold-Secret": leases.secret}
}

func (leases *Leasehold) keepAlive(alive context.Context) {
	renew, expire := time.NewTicker(leases.ttl/3), time.NewTicker(leases.ttl/100)
	defer renew.Stop()
	defer expire.Stop()
	for {
		select {
		case <-alive.Done():
			return
		case <-renew.C:
			go leases.renew(alive)
		case now := <-expire.C:
			leases.mutex.Lock()
			for id, lock := range leases.held {
				if !lock.validUntil.Add(-lock.margin).After(now) {
					leases.lose(id)
				}
			}
			leases.mutex.Unlock()
		}
	}
}

func (leases *Leasehold) renew(alive context.Context) {
	ctx, cancel := context.WithTimeout(alive, leases.ttl/3)
	defer cancel()
	var renewed struct {
		Held []struct {
			key
			ValidFor int64 `json:"valid_for_ms"`
		}
		Lost []key
	}
	sentAt := time.Now()
	// What is not renewed runs out by our own clock.
	if leases.request(ctx, "PUT", "/v1/sessions/"+leases.id, nil, leases.proof(), &renewed) != nil {
		return
	}
	leases.mutex.Lock()
	defer leases.mutex.Unlock()
	for _, held := range renewed.Held {
		until := sentAt.Add(time.Duration(held.ValidFor) * time.Millisecond)
		if lock := leases.held[held.key]; lock != nil && until.After(lock.validUntil) {
			lock.validUntil = until
		}
	}
	for _, id := range renewed.Lost {
		leases.lose(id)
	}
}

func (leases *Leasehold) lose(id key) {
	if lock := leases.held[id]; lock != nil {
		delete(leases.held, id)
		close(lock.lost)
	}
}

func (leases *Leasehold) request(ctx context.Context, method, path string, body any, headers map[string]string, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if body == nil {
		text = nil
	}
	request, err := http.NewRequestWithContext(ctx, method, leases.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if leases.token != "" {
		request.Header.Set("Authorization", "Bearer "+leases.token)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 400 {
		refused := &Refused{Status: answer.StatusCode, Detail: answer.Status}
		_ = json.NewDecoder(answer.Body).Decode(refused)
		return refused
	}
	if into == nil || answer.StatusCode == http.StatusNoContent {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

func span(duration time.Duration) string { return fmt.Sprintf("%dms", duration.Milliseconds()) }
