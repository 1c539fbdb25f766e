package access

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mongostream/streamer/fault"
)

const (
	// maxFile bounds a file that is read.
	maxFile = 4 << 20
	// settled is the age from which a modification time is reliable, because file systems have a
	// coarse resolution.
	settled = 2 * time.Second
	// retryEvery is how often invalid files are retried although they have not changed, because a
	// certificate may become valid.
	retryEvery = time.Second
)

// A watchedFiles is the parsed content of files, reloaded when they change. The files must be valid
// together, such as a certificate and its key.
type watchedFiles[T any] struct {
	paths  []string
	parse  func([][]byte) (T, error)
	code   fault.Code // the fault code for invalid content
	logger *slog.Logger

	reading sync.Mutex // held by the goroutine that reloads; others use the previous content
	current atomic.Pointer[reading[T]]
}

// A reading is the result of reading the files.
type reading[T any] struct {
	value  T
	stamps []os.FileInfo // nil for a missing file
	at     time.Time
	err    error // why the current files are not in force; nil if they are
}

// openFiles reads the files for the first time. If they are invalid it returns a fault with the
// code. parse gets the contents in the order of the paths; its result is shared and must not be
// changed.
func openFiles[T any](code fault.Code, logger *slog.Logger, parse func([][]byte) (T, error), paths ...string) (*watchedFiles[T], error) {
	f := &watchedFiles[T]{paths: paths, parse: parse, code: code, logger: logger}
	first := f.read()
	if first.err != nil {
		return nil, first.err
	}
	f.current.Store(first)
	return f, nil
}

// Get returns the content in force.
func (f *watchedFiles[T]) Get() T { return f.look().value }

// Err returns why the current files are not in force, or nil.
func (f *watchedFiles[T]) Err() error { return f.look().err }

func (f *watchedFiles[T]) look() *reading[T] {
	if now := f.current.Load(); !f.due(now) || !f.reading.TryLock() {
		return now
	}
	defer f.reading.Unlock()
	old := f.current.Load()
	found := f.read()
	switch {
	case found.err == nil && old.err != nil, found.err == nil && !sameFiles(old.stamps, found.stamps):
		f.logger.Info("access file reloaded", "files", f.paths)
	case found.err != nil:
		found.value = old.value
		if old.err == nil || old.err.Error() != found.err.Error() {
			f.logger.Error("access file is invalid, previous content stays in force", "files", f.paths, "error", found.err)
		}
	}
	f.current.Store(found)
	return found
}

// due reports whether the files must be read again.
func (f *watchedFiles[T]) due(r *reading[T]) bool {
	if !sameFiles(r.stamps, f.stamps()) {
		return true
	}
	if r.err != nil && time.Since(r.at) >= retryEvery {
		return true
	}
	return slices.ContainsFunc(r.stamps, func(s os.FileInfo) bool {
		return s != nil && r.at.Sub(s.ModTime()).Abs() < settled
	})
}

// read reads the files. It takes the stamps first, so that concurrent changes are detected the next
// time.
func (f *watchedFiles[T]) read() *reading[T] {
	r := &reading[T]{stamps: f.stamps(), at: time.Now()}
	contents := make([][]byte, len(f.paths))
	var err error
	for i, path := range f.paths {
		if contents[i], err = readFile(path); err != nil {
			r.err = fault.New(f.code, err)
			return r
		}
	}
	if r.value, err = f.parse(contents); err != nil {
		r.err = fault.Newf(f.code, "%s: %w", f.paths[0], err)
	}
	return r
}

func (f *watchedFiles[T]) stamps() []os.FileInfo {
	stamps := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = info
		}
	}
	return stamps
}

func sameFiles(a, b []os.FileInfo) bool {
	return slices.EqualFunc(a, b, func(a, b os.FileInfo) bool {
		if a == nil || b == nil {
			return a == b
		}
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	})
}

var errLarge = errors.New("the file is larger than 4 MiB")

func readFile(path string) (content []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading
	if content, err = io.ReadAll(io.LimitReader(file, maxFile+1)); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("read %s: %w", path, errLarge)
	}
	return content, nil
}
