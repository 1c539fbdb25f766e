package profile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/trace"
	"slices"
	"sync"
	"time"
)

// The length and size of a recording: at least the last seconds, if they fit.
const (
	flightAge   = 10 * time.Second
	flightBytes = 10 << 20
)

// A flight is the recorder and the folder of its recordings.
type flight struct {
	dir      string
	keep     int
	recorder *trace.FlightRecorder

	writing sync.Mutex // the recorder writes for one at a time
}

func newFlight(dir string, keep int) (*flight, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := tidy(dir); err != nil {
			return nil, err
		}
	}
	recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: flightAge, MaxBytes: flightBytes})
	return &flight{dir: dir, keep: keep, recorder: recorder}, nil
}

// unfinished is the name of a recording while it is written.
const unfinished = "flight-writing-*"

// tidy removes unfinished recordings of killed processes. Otherwise a node that is killed again and
// again would fill the disk.
func tidy(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, unfinished))
	if err != nil {
		return fmt.Errorf("list unfinished flight recordings: %w", err)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an unfinished flight recording: %w", err)
		}
	}
	return nil
}

// start begins to record. A process has one recorder at a time.
func (f *flight) start() error {
	if err := f.recorder.Start(); err != nil {
		return fmt.Errorf("start the flight recorder: %w", err)
	}
	return nil
}

func (f *flight) stop() { f.recorder.Stop() }

// write writes the recording.
func (f *flight) write(w io.Writer) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if _, err := f.recorder.WriteTo(w); err != nil {
		return fmt.Errorf("write a flight recording: %w", err)
	}
	return nil
}

// dump writes a recording into the folder and removes the oldest ones that are too many. It returns
// the file's name.
func (f *flight) dump(reason string, now time.Time) (string, error) {
	name := filepath.Join(f.dir, fmt.Sprintf("flight-%s-%s.trace", now.UTC().Format("20060102T150405.000"), reason))
	file, err := os.CreateTemp(f.dir, unfinished)
	if err != nil {
		return "", fmt.Errorf("write a flight recording: %w", err)
	}
	err = f.write(file)
	if closed := file.Close(); err == nil && closed != nil {
		err = fmt.Errorf("write a flight recording: %w", closed)
	}
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return name, f.prune()
}

// prune removes the oldest recordings; their names are in the order of time. Whatever else is in
// the folder stays.
func (f *flight) prune() error {
	names, err := filepath.Glob(filepath.Join(f.dir, "flight-*.trace"))
	if err != nil {
		return fmt.Errorf("list flight recordings: %w", err)
	}
	slices.Sort(names)
	for len(names) > f.keep {
		if err := os.Remove(names[0]); err != nil {
			return fmt.Errorf("remove a flight recording: %w", err)
		}
		names = names[1:]
	}
	return nil
}
