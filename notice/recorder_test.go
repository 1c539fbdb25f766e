package notice_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mongostream/streamer/notice"
)

var errAway = errors.New("etcd is away")

// A memory is the history of a cluster in memory, as one process sees it.
type memory struct {
	mu struct {
		sync.Mutex

		away    bool
		ours    []notice.Notice
		batches []int
		asked   int // how often anything was asked
		others  []notice.Notice
		changed chan struct{}
	}
}

func newMemory() *memory {
	m := &memory{}
	m.mu.changed = make(chan struct{})
	return m
}

func (m *memory) Append(_ context.Context, notices []notice.Notice) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.asked++
	if m.mu.away {
		return errAway
	}
	m.mu.ours, m.mu.batches = append(m.mu.ours, notices...), append(m.mu.batches, len(notices))
	return nil
}

func (m *memory) Read(_ context.Context, after int64) ([]notice.Notice, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.asked++
	if m.mu.away {
		return nil, after, errAway
	}
	return slices.Clone(m.mu.others[after:]), int64(len(m.mu.others)), nil
}

func (m *memory) Wait(ctx context.Context, after int64) error {
	for {
		m.mu.Lock()
		there, changed := int64(len(m.mu.others)) > after, m.mu.changed
		m.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add lets another process post.
func (m *memory) add(texts ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range texts {
		m.mu.others = append(m.mu.others, notice.Notice{ID: 99, Node: "other", At: time.Unix(7, 0), Text: text})
	}
	close(m.mu.changed)
	m.mu.changed = make(chan struct{})
}

func (m *memory) leave(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.away = away
}

func (m *memory) written() (texts []string, batches []int, asked int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.mu.ours {
		texts = append(texts, n.Text)
	}
	return texts, slices.Clone(m.mu.batches), m.mu.asked
}

// A bubble is a node's board and recorder.
type bubble struct {
	*testing.T

	memory   *memory
	board    *notice.Board
	recorder *notice.Recorder
	registry *prometheus.Registry
	log      bytes.Buffer
	stop     func()
}

// run runs a test in a bubble; the recorder runs once start is called.
func run(t *testing.T, cfg notice.RecorderConfig, test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, memory: newMemory(), board: notice.NewBoard(notice.Config{Node: "me"}), registry: prometheus.NewRegistry()}
		cfg.Registerer, cfg.Logger = b.registry, slog.New(slog.NewTextHandler(&b.log, nil))
		b.recorder = notice.NewRecorder(cfg, b.board, b.memory)
		test(b)
	})
}

func (b *bubble) start() {
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.recorder.Run(ctx)
	}()
	b.stop = func() {
		cancel()
		<-ended
	}
	b.Cleanup(b.stop)
}

func (b *bubble) post(from, to int) (texts []string) {
	return b.postLike(notice.Notice{Channel: notice.Health}, from, to)
}

// operate posts what operators have done.
func (b *bubble) operate(from, to int) {
	b.postLike(notice.Notice{Channel: notice.Audit, Kind: notice.KindOperated}, from, to)
}

func (b *bubble) postLike(n notice.Notice, from, to int) (texts []string) {
	n.Level = notice.Info
	for i := from; i < to; i++ {
		n.Text = fmt.Sprint(i)
		b.board.Post(n)
		texts = append(texts, n.Text)
	}
	return texts
}

func (b *bubble) count(name string) float64 {
	b.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	b.Fatalf("there is no metric %s", name)
	return 0
}

func TestBoardBeginsWithTheHistoryAndShowsWhatOthersPost(t *testing.T) {
	run(t, notice.RecorderConfig{}, func(b *bubble) {
		b.memory.add("one", "two")
		if err := b.recorder.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.start()
		b.post(0, 1)
		synctest.Wait()
		b.memory.add("three")
		time.Sleep(time.Second)
		got, _ := b.board.Since(0)
		want := []notice.Notice{
			{ID: 1, Node: "other", At: time.Unix(7, 0), Text: "one", Past: true, Relayed: true},
			{ID: 2, Node: "other", At: time.Unix(7, 0), Text: "two", Past: true, Relayed: true},
			{ID: 3, Node: "me", At: got[2].At, Text: "0", Channel: notice.Health, Level: notice.Info},
			{ID: 4, Node: "other", At: time.Unix(7, 0), Text: "three", Relayed: true},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			b.Errorf("%+v", got)
		}
		if texts, _, _ := b.memory.written(); !slices.Equal(texts, []string{"0"}) {
			b.Errorf("written: %v", texts)
		}
	})
}

func TestNoticesAreWrittenInBatches(t *testing.T) {
	run(t, notice.RecorderConfig{}, func(b *bubble) {
		want := b.post(0, 1)
		b.start()
		synctest.Wait()
		want = append(want, b.post(1, 251)...)
		time.Sleep(10 * time.Second)
		texts, batches, _ := b.memory.written()
		if !slices.Equal(texts, want) || !slices.Equal(batches, []int{1, 100, 100, 50}) {
			b.Errorf("%d in %v", len(texts), batches)
		}
		if n := b.count("streamer_notice_history_written_total"); n != 251 {
			b.Errorf("%v counted", n)
		}
	})
}

func TestHistoryThatIsAwayBlocksNobodyAndCostsTheOldest(t *testing.T) {
	run(t, notice.RecorderConfig{Bound: 10}, func(b *bubble) {
		b.memory.leave(true)
		b.memory.add("from before")
		if err := b.recorder.Load(b.Context()); !errors.Is(err, errAway) {
			b.Error(err)
		}
		b.start()
		b.post(0, 1)
		synctest.Wait() // in the hands of the writer
		for i := range 10 {
			b.post(1+10*i, 11+10*i)
			synctest.Wait()
		}
		time.Sleep(5 * time.Minute)
		if _, _, asked := b.memory.written(); asked > 100 {
			b.Errorf("asked %d times in 5 minutes", asked)
		}
		b.memory.leave(false)
		time.Sleep(time.Minute)
		texts, _, _ := b.memory.written()
		if !slices.Equal(texts, []string{"0", "91", "92", "93", "94", "95", "96", "97", "98", "99", "100"}) {
			b.Errorf("written: %v", texts)
		}
		if n := b.count("streamer_notice_history_dropped_total"); n != 90 {
			b.Errorf("%v counted as dropped", n)
		}
		if n := b.count("streamer_notice_history_failures_total"); n < 3 {
			b.Errorf("%v failures", n)
		}
		if got, _ := b.board.Since(0); !got[len(got)-1].Past || got[len(got)-1].Text != "from before" {
			b.Errorf("the history came as %+v", got[len(got)-1])
		}
		for _, once := range []string{"writing notice history failed", "reading notice history failed", "writing notice history recovered"} {
			if n := strings.Count(b.log.String(), once); n != 1 {
				b.Errorf("%q is logged %d times", once, n)
			}
		}
	})
}

// Who waits for the history is told when everything that was posted before is in it, and not
// before.
func TestFlushWaitsForTheHistory(t *testing.T) {
	run(t, notice.RecorderConfig{}, func(b *bubble) {
		flush := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(b.Context(), within)
			defer cancel()
			return b.recorder.Flush(ctx)
		}
		b.start()
		if err := flush(0); err != nil {
			b.Errorf("with nothing posted: %v", err)
		}
		want := b.post(0, 1)
		synctest.Wait() // it is written, and what follows waits for the pause
		want = append(want, b.post(1, 251)...)
		if err := flush(time.Minute); err != nil {
			b.Error(err)
		}
		if texts, _, _ := b.memory.written(); !slices.Equal(texts, want) {
			b.Errorf("%d of %d are written", len(texts), len(want))
		}
		b.memory.leave(true)
		b.post(251, 252)
		if err := flush(time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("while the history is away: %v", err)
		}
		b.memory.leave(false)
		if err := flush(time.Minute); err != nil {
			b.Errorf("after that: %v", err)
		}
	})
}

// flushing begins to wait for the history, and returns what becomes of that.
func (b *bubble) flushing() <-chan error {
	flushed := make(chan error, 1)
	go func() { flushed <- b.recorder.Flush(b.Context()) }()
	synctest.Wait()
	return flushed
}

// A notice of an operator that was dropped, because too many waited while the history was away, is
// not in it: who waits for it is told so.
func TestFlushDoesNotTakeDroppedNoticesForWritten(t *testing.T) {
	run(t, notice.RecorderConfig{Bound: 10}, func(b *bubble) {
		b.memory.leave(true)
		b.start()
		b.post(0, 1)
		synctest.Wait() // in the hands of the writer
		b.operate(1, 2)
		flushed := b.flushing()
		b.operate(2, 12) // as many as may wait
		synctest.Wait()
		b.memory.leave(false)
		if err := <-flushed; !errors.Is(err, notice.ErrDropped) {
			b.Errorf("%v, although the notice was dropped", err)
		}
		if err := b.recorder.Flush(b.Context()); err != nil {
			b.Errorf("what was dropped before: %v", err)
		}
		if texts, _, _ := b.memory.written(); slices.Contains(texts, "1") || len(texts) != 11 {
			b.Errorf("written: %v", texts)
		}
	})
}

// What is dropped of other histories, however much, does not concern who waits for what an operator
// has done.
func TestFlushIgnoresDroppedNoticesOfOthers(t *testing.T) {
	run(t, notice.RecorderConfig{Bound: 10}, func(b *bubble) {
		b.memory.leave(true)
		b.start()
		b.post(0, 1)
		synctest.Wait() // in the hands of the writer
		logins := notice.Notice{Channel: notice.Audit, Kind: notice.KindLoginAccepted}
		b.postLike(logins, 1, 11) // as many as may wait
		b.operate(11, 12)
		flushed := b.flushing()
		b.postLike(logins, 12, 17)
		b.post(17, 37)
		synctest.Wait()
		b.memory.leave(false)
		if err := <-flushed; err != nil {
			b.Error(err)
		}
		if dropped := b.count("streamer_notice_history_dropped_total"); dropped != 15 {
			b.Errorf("%v were dropped", dropped)
		}
		if texts, _, _ := b.memory.written(); !slices.Contains(texts, "11") {
			b.Errorf("written: %v", texts)
		}
	})
}

// small gives the bubble a board that keeps three notices of each history.
func (b *bubble) small() {
	b.board = notice.NewBoard(notice.Config{Node: "me", Keep: 3})
	b.registry = prometheus.NewRegistry()
	b.recorder = notice.NewRecorder(notice.RecorderConfig{Registerer: b.registry}, b.board, b.memory)
}

// The board may drop notices before the recorder has seen them: those of other histories or of
// other processes do not concern who waits for what an operator has done, and those of other
// processes are not counted.
func TestFlushIgnoresNoticesOfOthersThatTheBoardDropped(t *testing.T) {
	run(t, notice.RecorderConfig{}, func(b *bubble) {
		b.small()
		b.postLike(notice.Notice{Channel: notice.Audit, Kind: notice.KindLoginAccepted}, 0, 5)
		b.board.Relay(make([]notice.Notice, 10)...)
		b.board.Relay(slices.Repeat([]notice.Notice{{Channel: notice.Audit, Kind: notice.KindOperated}}, 10)...)
		b.operate(5, 6)
		flushed := b.flushing()
		b.start()
		if err := <-flushed; err != nil {
			b.Error(err)
		}
		if n := b.count("streamer_notice_history_dropped_total"); n != 2 {
			b.Errorf("%v counted as dropped", n)
		}
	})
}

func TestFlushTellsOfNoticesOfOperatorsThatTheBoardDropped(t *testing.T) {
	run(t, notice.RecorderConfig{}, func(b *bubble) {
		b.small()
		b.operate(0, 5)
		flushed := b.flushing()
		b.start()
		if err := <-flushed; !errors.Is(err, notice.ErrDropped) {
			b.Errorf("%v, although two are not in the history", err)
		}
		if n := b.count("streamer_notice_history_dropped_total"); n != 2 {
			b.Errorf("%v counted as dropped", n)
		}
	})
}

func TestStoppedRecorderWritesWhatWasPosted(t *testing.T) {
	run(t, notice.RecorderConfig{}, func(b *bubble) {
		b.start()
		synctest.Wait()
		want := b.post(0, 350)
		begun := time.Now()
		b.stop()
		if texts, _, _ := b.memory.written(); !slices.Equal(texts, want) || time.Since(begun) > 0 {
			b.Errorf("%d written after %s", len(texts), time.Since(begun))
		}
	})
}

func TestStoppedRecorderGivesUpWhereTheHistoryIsAway(t *testing.T) {
	run(t, notice.RecorderConfig{}, func(b *bubble) {
		b.memory.leave(true)
		b.start()
		synctest.Wait()
		b.post(0, 350)
		synctest.Wait()
		begun := time.Now()
		b.stop()
		if n := b.count("streamer_notice_history_dropped_total"); n != 350 || time.Since(begun) > 5*time.Second {
			b.Errorf("%v dropped after %s", n, time.Since(begun))
		}
	})
}
