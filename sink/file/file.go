package file

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mongostream/streamer/sink"
)

// Config configures a Target.
type Config struct {
	// Path is the path of the file. Required.
	Path string
	// MaxSize is the size in bytes at which a new file is begun. Defaults to 100 MiB.
	MaxSize int64
	// Keep is how many earlier files are kept. Defaults to 10.
	Keep int
}

// A Target appends messages to a file.
type Target struct {
	sink.Serial
	cfg  Config
	file *os.File // nil until the first message and after a failure
	text *bufio.Writer
	size int64
	last time.Time // in the name of the last full file
}

var _ sink.Target = (*Target)(nil)

var errChanged = errors.New("it was moved, deleted or changed meanwhile")

// batch bounds the lines that are synced together, writeBytes the bytes of a write.
const batch, writeBytes = 4096, 256 << 10

// New returns a Target, which opens its file at the first use.
func New(cfg Config) *Target {
	cfg.MaxSize, cfg.Keep = cmp.Or(cfg.MaxSize, 100<<20), cmp.Or(cfg.Keep, 10)
	t := &Target{cfg: cfg, text: bufio.NewWriterSize(nil, writeBytes)}
	t.Serial = sink.Serial{Send: t.write, Batch: batch, Parallel: 1, Together: true}
	return t
}

// write appends messages as lines and syncs them.
func (t *Target) write(_ context.Context, messages []*sink.Message) (n int, err error) {
	if err := t.open(); err != nil {
		return 0, err
	}
	t.text.Reset(t.file)
	size := t.size
	for _, m := range messages {
		_, _ = t.text.Write(m.Value) // Flush returns the error
		_ = t.text.WriteByte('\n')
		size += int64(len(m.Value)) + 1
		n++
		if size >= t.cfg.MaxSize {
			break
		}
	}
	if err = t.text.Flush(); err == nil {
		err = t.file.Sync()
	}
	switch {
	case err != nil: // no partial line may stay
		err = errors.Join(fmt.Errorf("append to sink's file: %w", err), t.file.Truncate(t.size), t.file.Close())
	case !t.holds(size): // where they are, the lines may be gone
		err = errors.Join(fmt.Errorf("append to sink's file: %w", errChanged), t.file.Close())
	}
	if err != nil {
		t.file = nil
		return 0, err
	}
	if t.size = size; size >= t.cfg.MaxSize {
		return n, t.rotate()
	}
	return n, nil
}

// holds reports whether the path still leads to the open file, and that has a size: others may have
// moved, deleted or truncated it.
func (t *Target) holds(size int64) bool {
	there, err := os.Stat(t.cfg.Path)
	if err != nil {
		return false
	}
	open, err := t.file.Stat()
	return err == nil && os.SameFile(there, open) && open.Size() == size
}

// open opens the file, also where others have put another one in its place, and cuts off a partial
// line that a crash has left at its end.
func (t *Target) open() error {
	if t.file != nil {
		if t.holds(t.size) {
			return nil
		}
		_ = t.file.Close() // all of it was synced
		t.file = nil
	}
	f, err := os.OpenFile(t.cfg.Path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640) //nolint:gosec // a group reads the logs of a service
	if err != nil {
		return fmt.Errorf("open sink's file: %w", err)
	}
	end, err := lastLine(f)
	if err == nil {
		err = f.Truncate(end)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open sink's file: %w", err), f.Close())
	}
	t.file = f
	t.size = end
	return nil
}

// lastLine returns the end of the last whole line.
func lastLine(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err //nolint:wrapcheck // open wraps it
	}
	block := make([]byte, 64<<10)
	for end := info.Size(); end > 0; {
		from := max(0, end-int64(len(block)))
		n, err := f.ReadAt(block[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err //nolint:wrapcheck // likewise
		}
		for i := n - 1; i >= 0; i-- {
			if block[i] == '\n' {
				return from + int64(i) + 1, nil
			}
		}
		end = from
	}
	return 0, nil
}

// stamp is the layout of the time at the end of a full file's name. Its names are of one length and
// sort by time.
const stamp = "20060102T150405.000000000"

// rotate renames the full file, and deletes the oldest ones.
func (t *Target) rotate() error {
	err := t.file.Close()
	t.file = nil
	full, last, listErr := t.full()
	if err = errors.Join(err, listErr); err != nil {
		return fmt.Errorf("rename the full file: %w", err)
	}
	now := time.Now().UTC()
	for _, before := range []time.Time{last, t.last} { // the last file may have been moved away
		if !now.After(before) { // the clock is coarse, or has gone back
			now = before.Add(1)
		}
	}
	name := t.cfg.Path + "." + now.Format(stamp)
	if err := os.Rename(t.cfg.Path, name); err != nil {
		return fmt.Errorf("rename the full file: %w", err)
	}
	t.last = now
	full = append(full, name)
	for _, name := range full[:max(0, len(full)-t.cfg.Keep)] {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("delete the oldest file: %w", err)
		}
	}
	return nil
}

// full returns the full files in the order in which they were written, and the time in the name of
// the last.
func (t *Target) full() (names []string, last time.Time, err error) {
	dir, base := filepath.Split(t.cfg.Path)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, last, err //nolint:wrapcheck // rotate wraps it
	}
	for _, e := range entries { // sorted by name
		suffix, is := strings.CutPrefix(e.Name(), base+".")
		if !is {
			continue
		}
		if at, err := time.Parse(stamp, suffix); err == nil {
			names = append(names, dir+e.Name())
			last = at
		}
	}
	return names, last, nil
}

// Check implements sink.Target.
func (t *Target) Check(context.Context) (string, error) {
	f, err := os.OpenFile(t.cfg.Path, os.O_CREATE|os.O_WRONLY, 0o640) //nolint:gosec // a group reads the logs of a service
	if err != nil {
		return "", fmt.Errorf("open sink's file: %w", err)
	}
	return "", f.Close()
}

// Close implements sink.Target.
func (t *Target) Close() {
	t.Serial.Close()
	if t.file != nil {
		_ = t.file.Close()
	}
}
