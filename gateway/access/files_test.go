package access

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mongostream/streamer/fault"
)

var errBad = errors.New("this is bad")

// join parses by joining, and refuses what holds the word bad.
func join(contents [][]byte) (string, error) {
	all := string(bytes.Join(contents, []byte("+")))
	if strings.Contains(all, "bad") {
		return "", errBad
	}
	return all, nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// age sets a file's time of change back, so that it counts as settled.
func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestChangesAreSeenAndWhatCannotBeUsedIsNot(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write(t, a, "1")
	write(t, b, "2")
	var log bytes.Buffer
	f, err := openFiles(fault.AccessBadFile, slog.New(slog.NewTextHandler(&log, nil)), join, a, b)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string, wrong error) {
		t.Helper()
		if got, err := f.Get(), f.Err(); got != want || !errors.Is(err, wrong) || wrong != nil && fault.Of(err) != fault.AccessBadFile {
			t.Fatalf("%q, %v", got, err)
		}
	}
	expect("1+2", nil)
	write(t, a, "3") // of the same size, within one step of the file system's clock
	expect("3+2", nil)
	write(t, b, "bad")
	expect("3+2", errBad)
	expect("3+2", errBad)
	if n := strings.Count(log.String(), "is invalid"); n != 1 {
		t.Errorf("reported %d times:\n%s", n, &log)
	}
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	expect("3+2", os.ErrNotExist)
	write(t, b, "4")
	expect("3+4", nil)
	replacement := filepath.Join(t.TempDir(), "c")
	write(t, replacement, "5")
	if err := os.Rename(replacement, b); err != nil {
		t.Fatal(err)
	}
	expect("3+5", nil)
	write(t, b, strings.Repeat("x", 4<<20+1))
	if got := f.Get(); got != "3+5" || !strings.Contains(f.Err().Error(), "larger than 4 MiB") {
		t.Errorf("%q, %v", got, f.Err())
	}
}

func TestFilesThatStayAreReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write(t, path, "1")
	age(t, path, time.Hour)
	parsed := 0
	f, err := openFiles(fault.AccessBadFile, slog.New(slog.DiscardHandler), func(c [][]byte) (string, error) { parsed++; return join(c) }, path)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		f.Get()
	}
	if parsed != 1 {
		t.Errorf("parsed %d times", parsed)
	}
	age(t, path, 2*time.Hour)
	if f.Get(); parsed != 2 {
		t.Errorf("parsed %d times after a change", parsed)
	}
}

// TestChangeWithinAStepOfTheFileSystemsClockIsSeen gives the second content the size and the time
// of the first.
func TestChangeWithinAStepOfTheFileSystemsClockIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write(t, path, "1")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := openFiles(fault.AccessBadFile, slog.New(slog.DiscardHandler), join, path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "2")
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if got := f.Get(); got != "2" {
		t.Errorf("%q", got)
	}
}

// TestWhatBecomesUsableByItselfIsTaken has a file that may be used from a time on, like a
// certificate.
func TestWhatBecomesUsableByItselfIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a")
		write(t, path, "old")
		begins, tried := time.Now().Add(time.Minute), 0
		f, err := openFiles(fault.AccessBadFile, slog.New(slog.DiscardHandler), func(c [][]byte) (string, error) {
			if tried++; string(c[0]) == "later" && time.Now().Before(begins) {
				return "", errBad
			}
			return join(c)
		}, path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, "later")
		for range 100 {
			if got := f.Get(); got != "old" {
				t.Fatalf("%q", got)
			}
		}
		if tried != 2 {
			t.Errorf("tried %d times", tried)
		}
		time.Sleep(time.Minute)
		if got, err := f.Get(), f.Err(); got != "later" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestOpeningNeedsUsableFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, prepare := range []func(){func() {}, func() { write(t, path, "bad") }} {
		prepare()
		if f, err := openFiles(fault.AccessBadCertificate, slog.New(slog.DiscardHandler), join, path); f != nil || fault.Of(err) != fault.AccessBadCertificate {
			t.Errorf("%v, %v", f, err)
		}
	}
}

// TestNobodyWaitsForTheReader holds one reader up in the file, while another asks.
func TestNobodyWaitsForTheReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write(t, path, "1")
	reading, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f, err := openFiles(fault.AccessBadFile, slog.New(slog.DiscardHandler), func(c [][]byte) (string, error) {
		if string(c[0]) == "22" {
			once.Do(func() { close(reading); <-goOn })
		}
		return join(c)
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "22")
	var wg sync.WaitGroup
	wg.Go(func() {
		if got := f.Get(); got != "22" {
			t.Errorf("the reader got %q", got)
		}
	})
	<-reading
	if got := f.Get(); got != "1" {
		t.Errorf("meanwhile %q", got)
	}
	close(goOn)
	wg.Wait()
}
