package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	leasehold "github.com/leasehold/leasehold/clients/go"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	leases, err := leasehold.Open(ctx, os.Args[1], leasehold.Options{TTL: 3 * time.Second, Label: "go"})
	check(err)
	lock, err := leases.Lock(ctx, "a b/c", leasehold.Wish{})
	check(err)
	fmt.Println("held", lock.Fence)
	_, err = leases.Lock(ctx, "a b/c", leasehold.Wish{})
	var refused *leasehold.Refused
	if errors.As(err, &refused) {
		fmt.Println(refused.Kind)
	}
	<-lock.Lost()
	fmt.Println("lost 0")
	again, err := leases.Lock(ctx, "a b/c", leasehold.Wish{Wait: 30 * time.Second})
	check(err)
	fmt.Println("again", again.Fence)
	check(again.Release(ctx))
	check(leases.Close(ctx))
	fmt.Println("done")
}
