package profile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// begin runs a Profiler and returns a function that ends it and waits.
func begin(t *testing.T, cfg Config) (*Profiler, func()) {
	t.Helper()
	p, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	return p, func() { cancel(); <-done }
}

// get asks the listener, which is bound before anything runs.
func get(t *testing.T, p *Profiler, path string) (int, []byte) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + p.Addr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, body
}

func TestOffByDefault(t *testing.T) {
	p, end := begin(t, Config{})
	end()
	if p.Addr() != "" || p.flight != nil {
		t.Error("something is on that nobody asked for")
	}
}

func TestLoopbackOnly(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "8.8.8.8:6060", "127.0.0.1"} {
		if p, err := New(t.Context(), Config{Listen: address}); fault.Of(err) != fault.ConfigBadValue {
			t.Errorf("%s: %v", address, err)
			if err == nil {
				p.Close()
			}
		}
	}
	for _, address := range []string{"127.0.0.1:0", "127.0.0.2:0", "localhost:0"} {
		p, err := New(t.Context(), Config{Listen: address})
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		p.Close()
	}
}

func TestPortInUseIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(t.Context(), Config{Listen: l.Addr().String()}); fault.Of(err) != fault.NodeAddressInUse {
		t.Error(err)
	}
}

func TestProfilesAndRecordingAreServed(t *testing.T) {
	p, end := begin(t, Config{Listen: "127.0.0.1:0"})
	defer end()
	if status, body := get(t, p, "/debug/pprof/"); status != http.StatusOK || !bytes.Contains(body, []byte("goroutine")) {
		t.Errorf("index: %d\n%s", status, body)
	}
	if status, body := get(t, p, "/debug/pprof/heap?debug=1"); status != http.StatusOK || !bytes.HasPrefix(body, []byte("heap profile")) {
		t.Errorf("heap: %d\n%.100s", status, body)
	}
	if status, body := get(t, p, "/debug/flight"); status != http.StatusOK || !bytes.HasPrefix(body, []byte("go 1.")) {
		t.Errorf("flight: %d\n%.100q", status, body)
	}
	if status, _ := get(t, p, "/debug/vars"); status != http.StatusNotFound {
		t.Errorf("something else is served: %d", status)
	}
}

func TestDumpKeepsTheNewest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dumps")
	f, err := newFlight(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.start(); err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	other := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var written []string
	for i := range 5 {
		name, err := f.dump("lag", time.Unix(int64(1000+i), 0))
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, name)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if want := append(written[2:], other); strings.Join(found, " ") != strings.Join(want, " ") {
		t.Errorf("left are %v, want %v", found, want)
	}
	recording, err := os.ReadFile(written[4])
	if err != nil || !bytes.HasPrefix(recording, []byte("go 1.")) {
		t.Errorf("no recording: %v, %.20q", err, recording)
	}
}

func TestWhatAKilledProcessLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	half, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		t.Fatal(err)
	}
	whole, other := filepath.Join(dir, "flight-20260101T000000.000-lag.trace"), filepath.Join(dir, "writing-notes")
	if err := errors.Join(half.Close(), os.WriteFile(whole, nil, 0o600), os.WriteFile(other, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	p, err := New(t.Context(), Config{DumpDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || strings.Join(found, " ") != whole+" "+other {
		t.Errorf("left are %v, %v", found, err)
	}
}

func TestFolderThatCannotBeMadeIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Config{DumpDir: filepath.Join(file, "dumps")}); fault.Of(err) != fault.ConfigBadValue {
		t.Error(err)
	}
}

func at(n uint32) change.Position { return change.At(change.Timestamp{T: n, I: 1}) }

func TestTroubleIsRecordedOnceWhenItBegins(t *testing.T) {
	type dump struct {
		after  time.Duration
		reason string
	}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	moving := func(lag func(second int) int) func(int) []Partition {
		return func(second int) []Partition {
			return []Partition{{ID: 1, Position: at(uint32(second))}, {ID: 2, Position: at(uint32(second)), Lag: seconds(lag(second))}}
		}
	}
	for _, tt := range []struct {
		name       string
		partitions func(second int) []Partition
		want       []dump
	}{
		{"all well", moving(func(int) int { return 1 }), nil},
		{"lag that lasts", moving(func(s int) int { return s }), []dump{{seconds(30), "lag"}}},
		{"lag that comes back at once", moving(func(s int) int { return 40 * (s % 2) }), []dump{{seconds(1), "lag"}, {seconds(61), "lag"}, {seconds(121), "lag"}}},
		{"lag that comes back later", moving(func(s int) int { return 40 * (s / 80 % 2) }), []dump{{seconds(80), "lag"}}},
		{"stall", func(s int) []Partition {
			return []Partition{{ID: 1, Position: at(uint32(min(s, 50))), Lag: time.Second}}
		}, []dump{{seconds(80), "stall"}}},
		{"idle", func(int) []Partition { return []Partition{{ID: 1, Position: at(5)}} }, nil},
		{"a new partition each time", func(s int) []Partition { return []Partition{{ID: s, Position: at(5), Lag: time.Second}} }, nil},
		{"none", func(int) []Partition { return nil }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				second := func() int { return int(time.Since(begun).Seconds()) }
				p, err := New(t.Context(), Config{Partitions: func() []Partition { return tt.partitions(second()) }})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second+time.Millisecond)
				defer cancel()
				var got []dump
				p.runWatch(ctx, func(reason string, now time.Time) (string, error) {
					got = append(got, dump{now.Sub(begun), reason})
					return "", errors.New("the disk is full")
				})
				if len(got) != len(tt.want) {
					t.Fatalf("dumps %v, want %v", got, tt.want)
				}
				for i := range got {
					if got[i] != tt.want[i] {
						t.Errorf("dumps %v, want %v", got, tt.want)
					}
				}
			})
		})
	}
}

func TestRecordingsAreAsConfigured(t *testing.T) {
	still := func(lag func(second int) time.Duration) func(second int) []Partition {
		return func(s int) []Partition { return []Partition{{ID: 1, Position: at(5), Lag: lag(s)}} }
	}
	for name, tt := range map[string]struct {
		cfg        Config
		partitions func(second int) []Partition
		after      time.Duration
	}{
		"lag":   {Config{LagThreshold: 5 * time.Second, StallThreshold: time.Hour}, still(func(s int) time.Duration { return time.Duration(s) * time.Second }), 5 * time.Second},
		"stall": {Config{StallThreshold: 7 * time.Second}, still(func(int) time.Duration { return time.Second }), 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			tt.cfg.Partitions = func() []Partition { return tt.partitions(int(time.Since(begun).Seconds())) }
			p, err := New(t.Context(), tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p.runWatch(ctx, func(reason string, now time.Time) (string, error) {
				if cancel(); reason != name || now.Sub(begun) != tt.after {
					t.Errorf("%s: dumped for the reason %s after %v, want %v", name, reason, now.Sub(begun), tt.after)
				}
				return "", nil
			})
		})
	}
	dir := t.TempDir()
	p, err := New(t.Context(), Config{DumpDir: dir, DumpMax: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.flight.start(); err != nil {
		t.Fatal(err)
	}
	defer p.flight.stop()
	for i := range 4 {
		if _, err := p.flight.dump("lag", time.Unix(int64(1000+i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(found) != 2 {
		t.Errorf("left are %v, %v", found, err)
	}
}
