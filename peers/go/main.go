// The Go libraries redsync and redislock as contestants of the benchmark; interop.go is for locks that are shared with others.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

type options struct {
	workload, lib, prefix, name string
	urls                        []string
	tasks, grants, locks        int
	round, hold, ttl            time.Duration
}

func parse(arguments []string) (o options, err error) {
	if len(arguments) == 0 {
		return o, fmt.Errorf("usage: contestant WORKLOAD key=value ...")
	}
	values := map[string]string{"lib": "redsync"}
	for _, argument := range arguments[1:] {
		key, value, _ := strings.Cut(argument, "=")
		values[key] = value
	}
	number := func(key string, otherwise int) int {
		if values[key] == "" {
			return otherwise
		}
		n, failed := strconv.Atoi(values[key])
		if failed != nil {
			err = failed
		}
		return n
	}
	o = options{
		workload: arguments[0], lib: values["lib"], prefix: values["prefix"], name: values["name"],
		urls:  strings.Split(values["urls"]+values["url"], ","),
		tasks: number("tasks", 64), grants: number("grants", 100), locks: number("locks", 1),
		round: time.Duration(number("ms", 1000)) * time.Millisecond,
		hold:  time.Duration(number("hold_us", 1000)) * time.Microsecond,
		ttl:   time.Duration(number("ttl_ms", 30_000)) * time.Millisecond,
	}
	if o.workload == "hold" {
		o.ttl = max(o.ttl, 10*time.Minute)
	}
	if modules[o.lib] == "" {
		return o, fmt.Errorf("unknown library %q", o.lib)
	}
	return o, err
}

// Why the library cannot take part, if it cannot.
func unsupported(o options) string {
	switch {
	case o.workload == "keep":
		return o.lib + " has no watchdog: renewing is left to the caller"
	case o.lib == "redislock" && len(o.urls) > 1:
		return "redislock locks on one server only"
	}
	return ""
}

func version(o options) any {
	found := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == modules[o.lib] {
				found = strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	language := strings.Replace(runtime.Version(), "go", "go ", 1)
	return map[string]any{"library": o.lib, "version": found, "language": language}
}

func say(result any) error { return json.NewEncoder(os.Stdout).Encode(result) }

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	o, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	if o.workload == "version" {
		return say(version(o))
	}
	if o.workload == "interop" {
		return serveInterop(o)
	}
	if why := unsupported(o); why != "" {
		return say(map[string]string{"unsupported": why})
	}
	lock, err := open(o)
	if err != nil {
		return err
	}
	return serve(lock, o)
}

func serve(lock library, o options) (err error) {
	lines := orders()
	var held []func() error
	release := func() error {
		// Nothing is held outside of the workload `hold`.
		o.locks = len(held)
		releases := held
		held = nil
		return eachLock(o, func(number int) error { return releases[number]() })
	}
	round := map[string]func() any{
		"cycle":   func() any { return cycle(lock, o) },
		"contend": func() any { return contend(lock, o) },
		"hold":    func() any { return map[string]int{"held": len(held)} },
	}[o.workload]
	switch o.workload {
	case "cycle":
		err = warmUp(lock, o)
	case "hold":
		held, err = takeAll(lock, o)
	}
	if round == nil {
		err = fmt.Errorf("unknown workload %q", o.workload)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for line := range lines {
		switch line {
		case "round":
			err = say(round())
		case "release":
			released := len(held)
			if err = release(); err == nil {
				err = say(map[string]int{"released": released})
			}
		}
		if err != nil {
			return err
		}
	}
	return release()
}
