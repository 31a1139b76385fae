// asynq: a task queue for Go on Redis.
//
// A server holds a lease of 30 s on each task; tasks whose lease has run out are found by a recoverer at
// the start and then every minute, and run again after the retry delay. Settings by its documentation,
// https://pkg.go.dev/github.com/hibiken/asynq@v0.26.0#Config. One goroutine of a server fetches tasks, one
// at a time, so several servers in one process fetch faster.
//
// Due times are whole seconds, rounded down by asynq; here they are rounded up, so that nothing runs early.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hibiken/asynq"
)

const (
	kind    = "bench"
	servers = 4
	// The most jobs of measures that time all jobs: it is offered them one by one, and handles some 25,000 a second.
	atMost = 30_000
)

var description = result{
	"name":     "asynq",
	"version":  "0.26.0",
	"language": "Go",
	"settings": "4 servers in one process, as one fetches one task at a time, that share the handlers; checks every 10 ms " +
		"(defaults 1 s and 5 s), retry delay 1 s (default 15 s and more); due times rounded up to whole seconds; jobs " +
		"that are due, and throughput's 30,000 thus, are enqueued without a delay",
	"survives_a_crash": true,
	"leaves_out":       "due times finer than a second, a bulk call",
}

type peer struct {
	redis     asynq.RedisConnOpt
	client    *asynq.Client
	inspector *asynq.Inspector
}

func connect(s settings) (*peer, error) {
	redis, err := asynq.ParseRedisURI(s.url)
	if err != nil {
		return nil, err
	}
	return &peer{redis: redis, client: asynq.NewClient(redis), inspector: asynq.NewInspector(redis)}, nil
}

func (p *peer) offer(j job) error {
	_, err := p.enqueue(j)
	return err
}

// offerAndWithdraw enqueues a task and deletes it by its ID.
func (p *peer) offerAndWithdraw(j job) error {
	task, err := p.enqueue(j)
	if err != nil {
		return err
	}
	return p.inspector.DeleteTask(task.Queue, task.ID)
}

func (p *peer) enqueue(j job) (*asynq.TaskInfo, error) {
	var options []asynq.Option
	if j.due.After(time.Now()) {
		options = append(options, asynq.ProcessAt(roundedUp(j.due)))
	}
	return p.client.Enqueue(asynq.NewTask(kind, j.payload), options...)
}

func roundedUp(due time.Time) time.Time {
	if seconds := due.Truncate(time.Second); seconds.Before(due) {
		return seconds.Add(time.Second)
	}
	return due
}

// work starts servers, which run until the process ends.
func (p *peer) work(concurrency int, r *record) error {
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		r.handle(task.Payload())
		return nil
	})
	for range servers {
		server := asynq.NewServer(p.redis, asynq.Config{
			Concurrency:              (concurrency + servers - 1) / servers,
			TaskCheckInterval:        10 * time.Millisecond,
			DelayedTaskCheckInterval: 10 * time.Millisecond,
			RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return time.Second },
			LogLevel:                 asynq.FatalLevel,
		})
		if err := server.Start(handler); err != nil {
			return err
		}
	}
	return nil
}

var errUnknown = errors.New("no such measure")

func run(measure string) (result, error) {
	if measure == "describe" {
		return description, nil
	}
	measures := map[string]func(*peer, settings) (result, error){
		"throughput": throughput, "lateness": lateness, "arm": arm, "bytes": bytes, "idle": idle,
		"kill": kill, "kill_again": killAgain, "arm_cancel": armCancel, "lives": lives,
	}
	does, ok := measures[measure]
	if !ok {
		return nil, errUnknown
	}
	s := settingsFromEnv()
	switch measure {
	case "throughput", "arm", "arm_cancel", "lives", "bytes":
		s.count = min(s.count, atMost)
	}
	p, err := connect(s)
	if err != nil {
		return nil, err
	}
	return does(p, s)
}

func main() {
	if len(os.Args) != 2 {
		os.Exit(78)
	}
	printed, err := run(os.Args[1])
	if errors.Is(err, errUnknown) {
		os.Exit(78)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	line, err := json.Marshal(printed)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
