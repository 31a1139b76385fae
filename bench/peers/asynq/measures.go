package main

// The protocol of bench/README.md, without the system.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	tasks        = 32
	killed       = 10
	maxQuiet     = 15 * time.Second
	killMaxLimit = 150 * time.Second
)

type settings struct {
	url         string
	count       int
	concurrency int
	rate        int
	shuffled    bool
	payload     []byte
}

func settingsFromEnv() settings {
	return settings{
		url:         variable("BENCH_URL", "redis://127.0.0.1:6379"),
		count:       number("BENCH_COUNT", 1000),
		concurrency: number("BENCH_CONCURRENCY", 100),
		rate:        number("BENCH_RATE", 1000),
		shuffled:    variable("BENCH_ORDER", "due") == "shuffled",
		payload:     []byte(variable("BENCH_PAYLOAD", `{"merchant":"m-1","order":"o-1","amount":1}`)),
	}
}

func variable(name, otherwise string) string {
	if value, ok := os.LookupEnv(name); ok {
		return value
	}
	return otherwise
}

func number(name string, otherwise int) int {
	value, err := strconv.Atoi(variable(name, strconv.Itoa(otherwise)))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return value
}

// job is one job to offer.
type job struct {
	due     time.Time
	payload []byte
}

// record is called by the handler with the job's payload: it counts starts, and notes their times.
type record struct {
	wanted int
	ends   bool
	timed  bool

	mu     sync.Mutex
	starts []time.Time
	lateMs []float64
	all    chan struct{}
}

func newRecord(wanted int) *record {
	return &record{wanted: wanted, ends: true, all: make(chan struct{})}
}

func (r *record) handle(payload []byte) {
	now := time.Now()
	var due struct{ Due int64 }
	if r.timed {
		if err := json.Unmarshal(payload, &due); err != nil {
			panic(err)
		}
	}
	r.mu.Lock()
	r.starts = append(r.starts, now)
	if r.timed {
		r.lateMs = append(r.lateMs, float64(now.UnixMicro())/1e3-float64(due.Due))
	}
	if len(r.starts) == r.wanted {
		close(r.all)
	}
	r.mu.Unlock()
	if !r.ends {
		select {}
	}
}

func (r *record) started() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.starts)
}

// allStarted waits until as many handlers as wanted have started, or none has for maxQuiet.
func (r *record) allStarted(maxQuiet time.Duration) {
	for before := -1; before != len(r.started()); {
		before = len(r.started())
		select {
		case <-r.all:
			return
		case <-time.After(maxQuiet):
		}
	}
}

func jobs(s settings, due func(number int) time.Time) []job {
	list := make([]job, s.count)
	for number := range list {
		list[number] = job{due: due(number), payload: s.payload}
	}
	if s.shuffled {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return list
}

// withDue adds the due time to the payload, so that the handler can measure its lateness.
func withDue(list []job) []job {
	for i, j := range list {
		body := j.payload[:len(j.payload)-1]
		list[i].payload = fmt.Appendf(nil, `%s,"due":%d}`, body, j.due.UnixMilli())
	}
	return list
}

func offerSingly(p *peer, list []job) error {
	for _, j := range list {
		if err := p.offer(j); err != nil {
			return err
		}
	}
	return nil
}

func offerFromTasks(p *peer, list []job) error {
	return fromTasks(list, p.offer)
}

// fromTasks calls does with each job, from all tasks.
func fromTasks(list []job, does func(job) error) error {
	left := make(chan job)
	failed := make([]error, tasks)
	var group sync.WaitGroup
	for task := range tasks {
		group.Add(1)
		go func() {
			defer group.Done()
			for j := range left {
				failed[task] = errors.Join(failed[task], does(j))
			}
		}()
	}
	for _, j := range list {
		left <- j
	}
	close(left)
	group.Wait()
	return errors.Join(failed...)
}

func perSecond(offer func(*peer, []job) error, p *peer, list []job) (float64, error) {
	begun := time.Now()
	err := offer(p, list)
	return float64(len(list)) / time.Since(begun).Seconds(), err
}

type result map[string]any

func throughput(p *peer, s settings) (result, error) {
	// The jobs are overdue. There is no bulk call.
	first := time.Now().Add(-time.Second)
	list := jobs(s, func(number int) time.Time {
		return first.Add(time.Second * time.Duration(number) / time.Duration(s.count))
	})
	if err := offerFromTasks(p, list); err != nil {
		return nil, err
	}
	r := newRecord(s.count)
	if err := p.work(s.concurrency, r); err != nil {
		return nil, err
	}
	r.allStarted(maxQuiet)
	starts := r.started()
	if len(starts) == 0 {
		return nil, errors.New("nothing was handled")
	}
	seconds := slices.MaxFunc(starts, time.Time.Compare).Sub(slices.MinFunc(starts, time.Time.Compare)).Seconds()
	return result{"handled": len(starts), "seconds": seconds, "per_s": float64(len(starts)-1) / seconds}, nil
}

func lateness(p *peer, s settings) (result, error) {
	r := newRecord(s.count)
	r.timed = true
	if err := p.work(s.concurrency, r); err != nil {
		return nil, err
	}
	first := time.Now().Add(2*time.Second + time.Duration(s.count)*time.Millisecond/2).Truncate(time.Millisecond)
	list := jobs(s, func(number int) time.Time {
		return first.Add(time.Duration(number*1000/s.rate) * time.Millisecond)
	})
	if err := offerFromTasks(p, withDue(list)); err != nil {
		return nil, err
	}
	if time.Now().After(first) {
		return nil, errors.New("offering took longer than was left until the first job was due")
	}
	r.allStarted(time.Until(first) + time.Second*time.Duration(s.count)/time.Duration(s.rate) + maxQuiet)

	r.mu.Lock()
	late := slices.Clone(r.lateMs)
	r.mu.Unlock()
	if len(late) == 0 {
		return nil, errors.New("nothing was handled")
	}
	slices.Sort(late)
	early, _ := slices.BinarySearch(late, 0)
	return result{
		"handled": len(late), "early": early,
		"p50_ms": percentile(late, 50), "p99_ms": percentile(late, 99), "max_ms": percentile(late, 100),
	}, nil
}

func arm(p *peer, s settings) (result, error) {
	inAnHour := func() []job {
		return jobs(s, func(int) time.Time { return time.Now().Add(time.Hour) })
	}
	single, err := perSecond(offerSingly, p, inAnHour())
	if err != nil {
		return nil, err
	}
	concurrent, err := perSecond(offerFromTasks, p, inAnHour())
	return result{"single_per_s": single, "concurrent_per_s": concurrent, "bulk_per_s": nil}, err
}

func armCancel(p *peer, s settings) (result, error) {
	list := jobs(s, func(int) time.Time { return time.Now().Add(time.Hour) })
	withdraw := func(p *peer, list []job) error { return fromTasks(list, p.offerAndWithdraw) }
	pairs, err := perSecond(withdraw, p, list)
	return result{"pairs_per_s": pairs}, err
}

func lives(p *peer, s settings) (result, error) {
	r := newRecord(s.count)
	if err := p.work(s.concurrency, r); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := offerFromTasks(p, jobs(s, func(int) time.Time { return begun })); err != nil {
		return nil, err
	}
	r.allStarted(maxQuiet)
	starts := r.started()
	if len(starts) == 0 {
		return nil, errors.New("nothing was handled")
	}
	// A handler does nothing, so its start is its end.
	seconds := slices.MaxFunc(starts, time.Time.Compare).Sub(begun).Seconds()
	return result{"handled": len(starts), "lives_per_s": float64(len(starts)) / seconds, "seconds": seconds}, nil
}

func bytes(p *peer, s settings) (result, error) {
	list := jobs(s, func(int) time.Time { return time.Now().Add(24 * time.Hour) })
	return result{"armed": s.count}, offerFromTasks(p, list)
}

func idle(p *peer, s settings) (result, error) {
	if err := p.work(s.concurrency, newRecord(-1)); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(s.count) * time.Second)
	return result{"seconds": s.count}, nil
}

func kill(p *peer, s settings) (result, error) {
	s.count = killed
	r := newRecord(killed)
	r.ends = false
	if err := p.work(max(s.concurrency, killed), r); err != nil {
		return nil, err
	}
	if err := offerSingly(p, jobs(s, func(int) time.Time { return time.Now() })); err != nil {
		return nil, err
	}
	r.allStarted(maxQuiet)
	if started := len(r.started()); started < killed {
		return nil, fmt.Errorf("no more than %d handlers have begun", started)
	}
	fmt.Printf("{\"started\":%d}\n", killed)
	select {}
}

func killAgain(p *peer, s settings) (result, error) {
	begun := time.Now()
	r := newRecord(killed)
	if err := p.work(max(s.concurrency, killed), r); err != nil {
		return nil, err
	}
	select {
	case <-r.all:
	case <-time.After(killMaxLimit):
	}
	seconds := []float64{}
	for _, start := range r.started() {
		seconds = append(seconds, start.Sub(begun).Seconds())
	}
	return result{"again": len(seconds), "seconds": seconds}, nil
}

// percentile returns a percentile by nearest rank.
func percentile(sorted []float64, percent int) float64 {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}
